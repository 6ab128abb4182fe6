// crest runs export, import.
#include <fmt/format.h>

#include <algorithm>

#include "cli/runs_options.h"
#include "core/error.h"
#include "core/io.h"
#include "core/text.h"
#include "core/to_stderr.h"
#include "store/export.h"
#include "store/filter.h"
#include "terminal/print_json.h"

namespace crest {

namespace {

std::vector<int64_t> runs_to_export(const Store& store, const RunsOptions& o) {
  std::vector<int64_t> ids;
  for (auto& name : o.names)
    if (int64_t id = store.find(name); std::find(ids.begin(), ids.end(), id) == ids.end()) ids.push_back(id);
  if (!o.names.empty()) return ids;
  for (auto& r : store.list(o.filter)) ids.push_back(r.id);
  std::reverse(ids.begin(), ids.end());  // oldest first: an import assigns ids in the same order
  return ids;
}

}  // namespace

int run_export(RunsOptions& o) {
  check_filter(o.filter);
  bool some = is_filtered(o.filter) || o.limit >= 0;
  if (o.names.empty() && !some && !o.all)
    fail_usage("no runs given", "crest runs export", "Name runs, give a filter such as --kind bench, or --all.");
  if (!o.names.empty() && (some || o.all))
    fail_usage("both runs and filters were given", "crest runs export", "Give only one of them.");
  if (o.out.empty())
    fail_usage("no output file given", "crest runs export", "Add -o runs.jsonl, or -o - for standard output.");
  o.filter.limit = std::max<int64_t>(o.limit, 0);
  Store store = o.store.open_to_read();
  std::vector<int64_t> ids = runs_to_export(store, o);
  if (ids.empty()) fail("no run matches", printable(store.file()), "crest runs list shows all runs.");
  if (o.out == "-") {
    write_export(store, ids, [](std::string_view text) { fmt::print("{}", text); });
    return 0;
  }
  if (path_exists(o.out) && !o.overwrite)
    fail(fmt::format("'{}' exists", printable(o.out)), "-o", "Choose another file, or add --overwrite.");
  std::string temporary = o.out + ".tmp";
  try {
    File file = File::create_new(temporary);
    write_export(store, ids, [&](std::string_view text) { file.write(text); });
    file.sync();
    file.close();
    rename_path(temporary, o.out);
  } catch (...) {
    remove_tree(temporary);
    throw;
  }
  if (o.json)
    print_json({{"file", o.out}, {"runs", ids.size()}});
  else
    to_stderr("{} runs -> {}\n", ids.size(), printable(o.out));
  return 0;
}

static Json import_file(Store& store, const std::string& path, const LogDescription& description) {
  LineReader lines(path, export_line_limit);
  std::string first;
  if (lines.next(first)) {
    if (first.rfind("SQLite format 3", 0) == 0)
      fail("is a run database, not an export", printable(path),
           "Read it with --store, or export it: crest runs export --all --store FILE -o runs.jsonl.");
    lines.unread(first);
  }
  if (is_export(first)) {
    Store::Added added = import_export(store, lines);
    to_stderr("{}: {} runs imported, {} were already there\n", printable(path), added.ids.size(), added.known);
    return {{"file", path}, {"runs", added.ids}, {"known", added.known}};
  }
  ImportedLog log = import_log(lines, description);
  Store::Added added = store.add_all([&, given = false](RunRecord& r) mutable {
    if (given) return false;
    r = log.record;
    return given = true;
  });
  to_stderr("{}: {} steps and {} validations of {} lines{}\n", printable(path), log.steps, log.validations, log.lines,
            added.known ? "; this log was already there" : fmt::format(" -> run {}", added.ids[0]));
  if (log.numbered) to_stderr("  The log does not number its steps; they were numbered by row.\n");
  if (log.without_unit > 0)
    to_stderr("  {} times or sizes without a unit (ms, s, MB, ...) were skipped.\n", log.without_unit);
  return {{"file", path},
          {"runs", added.ids},
          {"known", added.known},
          {"steps", log.steps},
          {"validations", log.validations},
          {"lines", log.lines},
          {"skipped_lines", log.skipped}};
}

int run_import(const RunsOptions& o) {
  if (o.names.empty())
    fail_usage("no file given", "crest runs import", "Give an export, a training log, or - (standard input).");
  LogDescription d = o.log;
  d.model = o.filter.model, d.device = o.filter.device;
  Store store = o.store.open_to_write();
  Json files = Json::array();
  for (auto& path : o.names) files.push_back(import_file(store, path, d));
  if (o.json) print_json(files);
  return 0;
}

}  // namespace crest
