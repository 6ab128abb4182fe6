#include "report/report_runs.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "compare/open_compared.h"
#include "core/error.h"
#include "core/io.h"
#include "core/temporary_folder.h"
#include "core/text.h"
#include "store/export.h"
#include "store/filter.h"
#include "store/import_log.h"

namespace crest {

namespace {

namespace fs = std::filesystem;

// Neither a database, a trace compressed by gzip nor JSON.
bool is_text_file(const std::string& path) {
  std::error_code error;
  if (!fs::is_regular_file(path, error)) return false;
  File file = File::open_read(path);
  std::string start(4096, '\0');
  start.resize(file.read_some(start.data(), start.size()));
  const size_t first = start.find_first_not_of(" \t\r\n");
  return first != start.npos && start[first] != '{' && start[first] != '[' && start.find('\0') == start.npos &&
         !start.starts_with("\x1f\x8b");
}

class Loader {
 public:
  void add(RunRecord run) {
    if (run.uid.empty() || seen_.insert(run.uid).second) runs.push_back(std::move(run));
  }

  // All runs of an export, read through a temporary store.
  void add_export(const std::string& file) {
    TemporaryFolder folder;
    Store store(folder / "runs.db");
    LineReader lines(file, export_line_limit);
    for (int64_t id : import_export(store, lines).ids) {
      RunRecord run = store.load(id);
      run.id = 0;  // its store is gone
      add(std::move(run));
    }
  }

  // A log, or all rows of a table of results, as crest runs import reads them.
  void add_text(const std::string& file) {
    LineReader lines(file, log_line_limit);
    ImportedText text = import_text(lines, {});
    if (text.log) {
      text.log->record.name = fs::path(file).filename().string();
      return add(std::move(text.log->record));
    }
    for (auto& run : text.results->records) add(std::move(run));
  }

  std::vector<RunRecord> runs;

 private:
  std::set<std::string> seen_;
};

bool is_export_file(const std::string& path) {
  std::error_code error;
  if (!fs::is_regular_file(path, error)) return false;
  LineReader lines(path, export_line_limit);
  std::string first;
  return lines.next(first) && is_export(first);
}

// The requested grid: by id or a prefix of it, or the newest one.
std::string find_grid(const Store& store, const std::string& grid) {
  std::vector<std::string> known;
  for (auto& r : store.list()) {
    if (r.grid.empty() || std::find(known.begin(), known.end(), r.grid) != known.end()) continue;
    if (grid == "latest" || r.grid.starts_with(grid)) return r.grid;
    known.push_back(r.grid);
  }
  if (known.empty())
    fail("no grid was recorded", printable(store.file()), "Measure one: crest bench --precision fp32,bf16 --batch 4,8");
  std::string near = did_you_mean(grid, known);
  fail(fmt::format("no grid '{}'", printable(grid)), printable(store.file()),
       near.empty() ? "--grid latest is the newest one." : near);
}

}  // namespace

std::vector<RunRecord> load_runs(const ReportRuns& o) {
  if (o.names.empty() && o.grid.empty() && o.kind.empty() && !o.all)
    fail_usage(
        "no runs were given", "crest report",
        "Name runs (crest runs list shows them), or use the newest grid: crest report --grid latest -o report.html");
  Loader loader;
  for (auto& name : o.names)
    if (is_export_file(name))
      loader.add_export(name);
    else if (is_text_file(name))
      loader.add_text(name);
    else
      loader.add(open_compared(name, o.store));
  if (!o.grid.empty() || !o.kind.empty() || o.all) {
    Store store = o.store.open_to_read();
    RunFilter filter;
    filter.kind = o.kind;
    check_filter(filter);
    if (!o.grid.empty()) filter.grid = find_grid(store, o.grid);
    auto found = store.list(o.all ? RunFilter() : filter);
    if (found.empty()) fail("no run matches", printable(store.file()), "crest runs list shows them.");
    for (auto& r : found) loader.add(store.load(r.id));
  }
  std::stable_sort(loader.runs.begin(), loader.runs.end(), [](auto& a, auto& b) { return a.started < b.started; });
  return std::move(loader.runs);
}

}  // namespace crest
