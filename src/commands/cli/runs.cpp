// crest runs: lists, shows, exports, imports and deletes recorded runs.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>

#include "cli/command.h"
#include "cli/options.h"
#include "cli/runs_options.h"
#include "cli/runs_print.h"
#include "cli/store_options.h"
#include "core/error.h"
#include "core/text.h"
#include "core/to_stderr.h"
#include "store/filter.h"
#include "store/record_json.h"
#include "terminal/fit_table.h"
#include "terminal/print_json.h"
#include "terminal/table.h"

namespace crest {

namespace {

constexpr int64_t table_limit = 50;  // rows of a table without --limit

void warn_of_damage(const std::vector<RunRecord>& runs) {
  constexpr int most = 10;
  int printed = 0, damaged = 0;
  for (auto& r : runs) {
    if (r.damage.empty() || ++damaged > most) continue;
    to_stderr("crest: warning: run {} is damaged: {}\n", r.id, printable(join(r.damage, "; "), 500));
    ++printed;
  }
  if (damaged > printed) to_stderr("crest: warning: {} more runs are damaged\n", damaged - printed);
}

int run_list(RunsOptions& o) {
  if (!o.names.empty())
    fail_usage(fmt::format("unexpected argument '{}'", printable(o.names[0])), "crest runs list",
               "Search by name with --text, or use crest runs show RUN.");
  check_filter(o.filter);
  bool table = !o.json && !o.csv;
  o.filter.limit = o.limit >= 0 ? o.limit : table ? table_limit + 1 : 0;
  Store store = o.store.open_to_read();
  std::vector<RunRecord> runs = store.list(o.filter);
  warn_of_damage(runs);
  if (o.json) {
    print_json(runs_to_json(runs));
    return 0;
  }
  if (o.csv) {
    fmt::print("{}", runs_csv(runs, o.columns));
    return 0;
  }
  if (runs.empty()) {
    to_stderr("{}\n", is_filtered(o.filter) ? "No run matches. crest runs list shows all runs."
                                            : "No runs recorded yet. Try: crest bench --model nano");
    return 0;
  }
  bool more = o.limit < 0 && int64_t(runs.size()) > table_limit;
  if (more) runs.resize(table_limit);
  fmt::print("{}", runs_table(runs, o.columns, use_color(STDOUT_FILENO), output_width()));
  if (more) to_stderr("Showing the newest {} runs; --limit 0 shows all.\n", table_limit);
  return 0;
}

int run_show(const RunsOptions& o) {
  if (o.names.size() != 1)
    fail_usage(fmt::format("{} runs given", o.names.size()), "crest runs show",
               "Give one by id, uid, name or folder: crest runs show RUN.");
  Store store = o.store.open_to_read();
  int64_t id = store.find(o.names[0]);
  if (!o.document.empty()) {
    print_json(store.document(id, o.document));
    return 0;
  }
  RunRecord run = store.load_without_documents(id);
  if (o.json) {
    print_json(record_to_json(run));
    return 0;
  }
  ShowOptions show;
  show.samples = o.samples, show.width = terminal_width(STDOUT_FILENO), show.color = use_color(STDOUT_FILENO);
  fmt::print("{}", show_run(run, show));
  return 0;
}

// Asks only if someone can answer.
bool confirmed(const RunsOptions& o, const std::vector<RunRecord>& runs) {
  if (o.yes) return true;
  if (!isatty(STDIN_FILENO) || !isatty(STDERR_FILENO))
    fail_usage("deleting needs --yes when standard input is not a terminal", "crest runs delete", "Add --yes.");
  for (auto& r : runs) to_stderr("  {}\n", short_name(r));
  to_stderr("Delete {}? [y/N] ", runs.size() == 1 ? "this run" : fmt::format("these {} runs", runs.size()));
  std::string answer;
  std::getline(std::cin, answer);
  return answer == "y" || answer == "Y" || answer == "yes";
}

int run_delete(const RunsOptions& o) {
  if (o.names.empty()) fail_usage("no runs given", "crest runs delete", "Name runs: crest runs delete RUN...");
  o.store.open_to_read();  // fails if the file is missing, instead of creating it
  Store store = o.store.open_to_write();
  std::vector<RunRecord> runs;
  for (auto& name : o.names) {
    int64_t id = store.find(name);
    if (std::any_of(runs.begin(), runs.end(), [&](auto& r) { return r.id == id; })) continue;
    runs.push_back(store.head(id));
    if (runs.back().status == "running" && !o.force)
      fail(fmt::format("run {} is still running", short_name(runs.back())), "crest runs delete",
           "Stop it first, or add --force.");
  }
  if (!confirmed(o, runs)) {
    to_stderr("Nothing was deleted.\n");
    return 0;
  }
  for (auto& r : runs) {
    store.erase(r.id);
    to_stderr("deleted {}\n", short_name(r));
  }
  if (o.json) print_json(run_names_to_json(runs));
  return 0;
}

// Reports an option of another action.
void check_groups(const CLI::App& app, const std::string& action) {
  for (const CLI::Option* option : app.get_options()) {
    const std::string& group = option->get_group();
    if (!option->count() || !group.starts_with("For ")) continue;
    auto actions = split(group.substr(4), ' ');
    for (auto& a : actions) a.erase(a.find_last_not_of(',') + 1);
    if (std::find(actions.begin(), actions.end(), action) == actions.end())
      fail_usage(fmt::format("{} does not apply here", option->get_name()), "crest runs " + action,
                 fmt::format("It belongs to: {}.", group.substr(4)));
  }
}

int run_runs(const CLI::App& app, RunsOptions& o) {
  static const std::vector<std::string> actions = {"list", "show", "export", "import", "delete"};
  if (o.action.empty()) o.action = "list";
  if (std::find(actions.begin(), actions.end(), o.action) == actions.end())
    fail_usage(fmt::format("unknown action '{}'", printable(o.action)), "crest runs",
               did_you_mean(o.action, actions) + " Actions: " + join(actions, ", ") + ".");
  check_groups(app, o.action);
  read_where(o);
  if (o.action == "list") return run_list(o);
  if (o.action == "show") return run_show(o);
  if (o.action == "export") return run_export(o);
  return o.action == "import" ? run_import(o) : run_delete(o);
}

}  // namespace

std::function<int()> setup_runs(CLI::App& app) {
  auto o = std::make_shared<RunsOptions>();
  app.add_option("ACTION", o->action, "list, show, export, import or delete");
  app.add_option("RUN", o->names, "runs by id, uid, name or folder; for import: files");
  auto option = [&](const char* group, const char* flag, auto& value, const char* help) {
    return app.add_option(flag, value, help)->group(group);
  };
  const char* filters = "For list, export";
  RunFilter& f = o->filter;
  option(filters, "--kind", f.kind, "bench, profile, train, compare, experiment or log");
  option(filters, "--status", f.status, "running, done, failed, interrupted, lost or out_of_memory");
  option(filters, "--phase", f.phase, "forward, forward-saved, backward, step or decode");
  option(filters, "--grid", f.grid, "runs of this grid");
  option(filters, "--key", f.key, "repeats of one measurement: same recipe, device and phase");
  option(filters, "--since", f.since, "started at this time or later (UTC): 2026-01-31, 2026-01-31T12:00");
  option(filters, "--until", f.until, "started at this time or earlier");
  option(filters, "--text", f.text, "part of the name, command or folder");
  option(filters, "--where", o->where, "SETTING=VALUE: runs with this setting, e.g. lr=0.001; repeatable")
      ->allow_extra_args(false)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  option(filters, "--limit", o->limit, "the newest N runs (0: all)")->check(CLI::NonNegativeNumber);
  const char* shared = "For list, export, import";
  option(shared, "--model", f.model, "filter; for import: the model of a training log");
  option(shared, "--device", f.device,
         "filter: cpu, cuda or part of its name; for import: the device of a training log");
  app.add_flag("--csv", o->csv, "comma-separated values")->group("For list");
  option("For list", "--columns", o->columns, "NAME,NAME: columns to show (id, name, step_ms_median, any setting, ...)")
      ->type_name("NAMES");
  app.add_flag("--samples", o->samples, "print every sample")->group("For show");
  option("For show", "--document", o->document, "print this document (profile, plan, ...) as JSON");
  option("For export", "-o,--out", o->out, "file to write, or - (standard output); with --to: folder (default: .)")
      ->type_name("FILE");
  option("For export", "--to", o->tracker, "wandb: offline runs for Weights & Biases, by its Python package")
      ->type_name("TRACKER");
  option("For export", "--project", o->project, "with --to: the project (default: WANDB_PROJECT, else crest)")
      ->type_name("NAME");
  app.add_flag("--all", o->all, "every run")->group("For export");
  app.add_flag("--overwrite", o->overwrite, "replace the file")->group("For export");
  option("For import", "--name", o->log.name, "name for the run of a training log (default: the file's name)");
  option("For import", "--batch", o->log.batch, "sequences per step of a training log")
      ->check(CLI::Range(int64_t(1), int64_t(1) << 31));
  option("For import", "--seq", o->log.seq, "tokens per sequence of a training log")
      ->check(CLI::Range(int64_t(1), int64_t(1) << 31));
  app.add_flag("--yes", o->yes, "do not ask")->group("For delete");
  app.add_flag("--force", o->force, "also delete runs that are still running")->group("For delete");
  add_store_option(app, o->store);
  add_json_option(app, o->json);
  add_config_option(app);
  return [o, &app] { return run_runs(app, *o); };
}

}  // namespace crest
