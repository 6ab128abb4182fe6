// crest report: writes a report about recorded runs, as one HTML file or as Markdown.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>

#include "cli/command.h"
#include "cli/options.h"
#include "cli/store_options.h"
#include "core/error.h"
#include "core/text.h"
#include "core/to_stderr.h"
#include "lab/lab_report.h"
#include "report/report.h"
#include "report/report_files.h"
#include "report/report_runs.h"
#include "terminal/print_json.h"
#include "terminal/table.h"

namespace crest {

namespace {

struct ReportFlags {
  ReportRuns runs;
  std::vector<std::string> out;
  std::string title;
  bool lab = false, no_figures = false, overwrite = false, json = false;
};

int run_report(const ReportFlags& o) {
  if (o.out.empty() && !o.json)
    fail_usage("no output file given", "crest report",
               "For example: crest report --all -o report.html. (-o report.md and --json work, too.)");
  for (auto& file : o.out) check_report_file(file, o.overwrite);
  ReportRuns chosen = o.runs;
  if (o.lab && chosen.names.empty() && chosen.grid.empty() && !chosen.all) chosen.kind = "experiment";
  std::vector<RunRecord> runs = load_runs(chosen);
  Report report = o.lab ? lab::make_lab_report(runs, o.title) : make_report(runs, o.title);
  for (auto& file : o.out) {
    write_report_file(report.page, file, !o.no_figures);
    to_stderr("{}: {}\n", printable(file), printable(report.page.subtitle));
  }
  if (o.json)
    print_json(report.json);
  else
    for (auto& line : report.json["summary"])
      fmt::print("{}\n", wrapped(printable(line.get<std::string>(), 1000),
                                 {.width = size_t(std::max(terminal_width(STDOUT_FILENO), 40))}));
  return 0;
}

}  // namespace

std::function<int()> setup_report(CLI::App& app) {
  auto o = std::make_shared<ReportFlags>();
  app.add_option("RUN", o->runs.names,
                 "runs (id, uid, name or folder), or files (exports, profiles, training logs, tables of results)");
  app.add_option("--grid", o->runs.grid, "all runs of this grid (latest: the newest grid)");
  app.add_option("--kind", o->runs.kind, "all runs of this kind: bench, profile, train, ...");
  app.add_flag("--all", o->runs.all, "all runs of the run database");
  app.add_flag("--lab", o->lab, "report on crest lab instead: the newest verdicts of each experiment");
  app.add_option("-o,--out", o->out, "file to write, .html or .md; repeat it for several files")->type_name("FILE");
  app.add_option("--title", o->title, "title of the report");
  app.add_flag("--no-figures", o->no_figures, "write Markdown without figure files");
  app.add_flag("--overwrite", o->overwrite, "replace the file even if it is not a report");
  add_store_option(app, o->runs.store);
  add_json_option(app, o->json);
  add_config_option(app);
  return [o] { return run_report(*o); };
}

}  // namespace crest
