// crest runs export, import.
#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "cli/runs_options.h"
#include "core/error.h"
#include "core/io.h"
#include "core/output_file.h"
#include "core/shell_word.h"
#include "core/text.h"
#include "core/to_stderr.h"
#include "host/stop_signal.h"
#include "store/export.h"
#include "store/filter.h"
#include "store/import_file.h"
#include "store/tracker.h"
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

int export_to(const Store& store, const std::vector<int64_t>& ids, const RunsOptions& o) {
  std::optional<StopSignal> signal;
  if (!StopSignal::guarded()) signal.emplace();
  const TrackerExport exported = export_to_tracker(store, ids, {o.tracker, o.out.empty() ? "." : o.out, o.project});
  if (o.json) {
    print_json(to_json(exported));
    return 0;
  }
  for (auto& run : exported.runs)
    to_stderr("{}: {} -> {}\n", printable(run.name), format_number_of(run.rows, "row"), printable(run.folder));
  const std::string one = exported.runs.size() == 1 ? exported.runs[0].folder : "";
  to_stderr("Nothing was sent. To send {}: wandb sync {}\n", one.empty() ? "them" : "it",
            one.empty() ? "FOLDER..." : shell_path(one));
  return 0;
}

}  // namespace

int run_export(RunsOptions& o) {
  check_filter(o.filter);
  bool some = is_filtered(o.filter) || o.limit >= 0;
  if (o.names.empty() && !some && !o.all)
    fail_usage("no runs given", "crest runs export", "Name runs, give a filter such as --kind bench, or --all.");
  if (!o.names.empty() && (some || o.all))
    fail_usage("both runs and filters were given", "crest runs export", "Give only one of them.");
  const bool tracker = !o.tracker.empty();
  if (!tracker && !o.project.empty()) fail_usage("a project is for a tracker", "--project", "Add --to wandb.");
  if (tracker) check_tracker(o.tracker);
  if (tracker && o.overwrite)
    fail_usage("a tracker keeps every run in a folder of its own", "--overwrite", "Leave it out.");
  if (tracker && o.out == "-") fail_usage("a tracker needs a folder", "-o", "Give a folder: -o DIR.");
  if (!tracker && o.out.empty())
    fail_usage("no output file given", "crest runs export", "Add -o runs.jsonl, or -o - for standard output.");
  o.filter.limit = std::max<int64_t>(o.limit, 0);
  Store store = o.store.open_to_read();
  std::vector<int64_t> ids = runs_to_export(store, o);
  if (ids.empty()) fail("no run matches", printable(store.file()), "crest runs list shows all runs.");
  if (tracker) return export_to(store, ids, o);
  if (o.out == "-") {
    write_export(store, ids, [](std::string_view text) { fmt::print("{}", text); });
    return 0;
  }
  require_no_run_file(o.out);
  if (path_exists(o.out) && !o.overwrite)
    fail(fmt::format("'{}' exists", printable(o.out)), "-o", "Choose another file, or add --overwrite.");
  ExportedFile exported = write_export_file(store, ids, o.out);
  if (o.json)
    print_json(to_json(exported));
  else
    to_stderr("{} runs -> {}\n", exported.runs, printable(exported.file));
  return 0;
}

static void print_results(const ImportedFile& f, const ImportedResults& r) {
  to_stderr("{}: {} of {}{} -> {}{}\n", printable(f.path), format_number_of(int64_t(r.records.size()), "result"),
            format_number_of(r.lines, "line"),
            r.out_of_memory ? fmt::format(", {} out of memory", r.out_of_memory) : "",
            format_number_of(int64_t(f.added.ids.size()), "run"),
            f.added.known ? fmt::format("; {} already there", f.added.known) : "");
  if (r.repeated) to_stderr("  {} that repeat an earlier one were skipped.\n", format_number_of(r.repeated, "line"));
  if (r.unreadable)
    to_stderr("  {} with a batch size and without a figure were skipped, the first in {}\n",
              format_number_of(r.unreadable, "line"), r.first_unreadable);
  if (!f.added.ids.empty()) to_stderr("  report on them with: crest report --grid latest -o report.md\n");
}

static void print_imported(const ImportedFile& f) {
  if (!f.text)
    return to_stderr("{}: {} runs imported, {} were already there\n", printable(f.path), f.added.ids.size(),
                     f.added.known);
  if (f.text->results) return print_results(f, *f.text->results);
  const ImportedLog& log = *f.text->log;
  to_stderr("{}: {} steps and {} validations of {} lines{}\n", printable(f.path), log.steps, log.validations, log.lines,
            f.added.known ? "; this log was already there" : fmt::format(" -> run {}", f.added.ids[0]));
  if (log.numbered) to_stderr("  The log does not number its steps; they were numbered by row.\n");
  if (log.without_unit > 0)
    to_stderr("  {} times or sizes without a unit (ms, s, MB, ...) were skipped.\n", log.without_unit);
  if (f.text->results_left_out)
    to_stderr("  {} of results by batch size were skipped: the text has training steps.\n",
              format_number_of(f.text->results_left_out, "line"));
}

int run_import(const RunsOptions& o) {
  if (o.names.empty())
    fail_usage("no file given", "crest runs import", "Give an export, a training log, or - (standard input).");
  LogDescription d = o.log;
  d.model = o.filter.model, d.device = o.filter.device;
  Store store = o.store.open_to_write();
  std::vector<ImportedFile> files;
  for (auto& path : o.names) {
    files.push_back(import_file(store, path, d));
    print_imported(files.back());
  }
  if (o.json) print_json(to_json(files));
  return 0;
}

}  // namespace crest
