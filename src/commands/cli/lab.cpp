// crest lab: runs experiments on claims of documents about training speed, and gives each claim a
// verdict; or judges recorded measurements again.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>

#include "cli/command.h"
#include "cli/options.h"
#include "cli/store_options.h"
#include "core/error.h"
#include "core/text.h"
#include "host/stop_signal.h"
#include "lab/judged.h"
#include "lab/result_json.h"
#include "lab/result_text.h"
#include "lab/run.h"
#include "terminal/print_json.h"
#include "terminal/table.h"

namespace crest {

namespace {

struct LabFlags {
  std::vector<std::string> arguments;  // list, show NAME, run NAME...
  LabOptions lab;
  BenchOptions bench;  // settings shared by all measurements: store, seed
  DeviceOptions device;
  std::string budget;
  bool all = false;
  std::vector<const CLI::Option*> measurement;  // options foreign to judging
};

int list(const LabFlags& o) {
  std::vector<lab::Experiment> all = lab::all_experiments();
  if (o.lab.json)
    print_json(lab::to_json(all));
  else
    fmt::print("{}", lab::list_text(all, use_color(STDOUT_FILENO)));
  return 0;
}

int show(const LabFlags& o, const std::string& name) {
  lab::Experiment e = lab::find_experiment(name);
  Device device = o.device.find();
  LabMeasurements measurements;
  if (e.unavailable.empty())
    measurements = lab_measurements(e, o.lab.scale, device, o.device.limit(device), o.lab.data);
  std::vector<lab::MeasurementSpec> specs;
  for (auto& c : measurements) specs.push_back(c->spec());
  if (o.lab.json)
    print_json(lab::to_json(e, specs, o.lab.scale));
  else
    fmt::print("{}", lab::show_text(e, specs, o.lab.scale));
  return 0;
}

void print_lab(const std::vector<lab::Result>& results, bool json) {
  if (json) return print_json(lab::to_json(results));
  if (results.size() > 1) fmt::print("{}", lab::summary_text(results, use_color(STDOUT_FILENO)));
}

std::vector<lab::Experiment> chosen(const LabFlags& o) {
  std::vector<lab::Experiment> list;
  for (size_t i = 1; i < o.arguments.size(); ++i) list.push_back(lab::find_experiment(o.arguments[i]));
  if (o.all == !list.empty())
    fail_usage(o.all ? "both experiments and --all were given" : "no experiment given", "crest lab " + o.arguments[0],
               "Name experiments, or give --all. crest lab list shows them.");
  if (o.all) list = lab::all_experiments();
  for (auto& e : list)
    if (!e.unavailable.empty() && !o.all)
      fail(fmt::format("{} is not available yet: {}", printable(e.name), printable(e.unavailable, 400)),
           "crest lab run", "crest lab list shows the available ones.");
  std::erase_if(list, [](auto& e) { return !e.unavailable.empty(); });
  return list;
}

int run_lab(const LabFlags& o) {
  LabOptions lab_options = o.lab;
  if (!o.budget.empty()) lab_options.budget_seconds = parse_duration(o.budget, "--budget");
  if (o.lab.resume && o.bench.store.off)
    fail_usage("--resume needs recorded results", "--resume", "Leave out --no-store.");
  std::vector<lab::Experiment> list = chosen(o);
  Device device = o.device.find();
  int64_t limit = o.device.limit(device);
  std::vector<LabMeasurements> measurements;  // all measurements are checked before the first is measured
  for (auto& e : list) measurements.push_back(lab_measurements(e, o.lab.scale, device, limit, o.lab.data));
  BenchMeasure bench(o.bench);
  bench.open_store();
  LabRunner runner(lab_options, bench, device, limit);
  std::vector<lab::Result> results;
  for (size_t i = 0; i < list.size(); ++i) {
    results.push_back(runner.run(list[i], measurements[i]));
    if (!o.lab.json) fmt::print("{}\n", lab::result_text(results.back(), use_color(STDOUT_FILENO)));
    std::fflush(stdout);
  }
  print_lab(results, o.lab.json);
  size_t left = 0;
  for (auto& r : results) left += r.measurements_left;
  std::string how = o.bench.store.off ? "Nothing was recorded (--no-store)."
                                      : "Run the same command with --resume to measure the rest.";
  if (runner.interrupted())
    throw Error(Exit::interrupted, "interrupted with " + format_number_of(int64_t(left), "measurement") + " left",
                "crest lab run", how);
  if (left > 0)
    BenchMeasure::say(fmt::format("the budget of {} is used up; {} left. {}", o.budget,
                                  format_number_of(int64_t(left), "measurement") + (left == 1 ? " is" : " are"), how));
  return 0;
}

int judge(const LabFlags& o) {
  for (const CLI::Option* given : o.measurement)
    if (given->count() > 0)
      fail_usage("crest lab judge measures nothing", given->get_name(), "Omit it, or use crest lab run.");
  lab::check_scale_name(o.lab.scale);
  Recorder recorder = o.bench.store.open();
  if (!recorder.on()) fail_usage("there are no records to judge without a run database", "--no-store", "Leave it out.");
  Store& store = *recorder.store();
  Device here = o.device.find();
  std::vector<lab::Experiment> list = chosen(o);
  std::vector<lab::Result> results;
  for (auto& e : list) {
    int64_t id = lab::find_recorded(store, e, o.lab.scale);
    if (id == 0 && o.all) continue;
    if (id == 0)
      fail(fmt::format("{} has no record at scale {} in {}", printable(e.name), o.lab.scale, printable(store.file())),
           "crest lab judge", "crest lab run measures it, --scale names another scale.");
    results.push_back(lab::judge_again(store, id, e, here));
    if (!o.lab.json) fmt::print("{}\n", lab::result_text(results.back(), use_color(STDOUT_FILENO)));
  }
  if (results.empty())
    fail(fmt::format("no experiment has a record at scale {} in {}", o.lab.scale, printable(store.file())),
         "crest lab judge", "crest lab run measures them, --scale names another scale.");
  print_lab(results, o.lab.json);
  return 0;
}

int act(const LabFlags& o) {
  std::string action = o.arguments.empty() ? "list" : o.arguments[0];
  if (action == "list" && o.arguments.size() <= 1) return list(o);
  if (action == "show" && o.arguments.size() == 2) return show(o, o.arguments[1]);
  if (action == "show") fail_usage("give one experiment", "crest lab show", "crest lab list shows them.");
  if (action == "run") return run_lab(o);
  if (action == "judge") return judge(o);
  fail_usage(
      fmt::format("unknown action '{}'", printable(action)), "crest lab",
      did_you_mean(action, {"list", "show", "run", "judge"}) + " Actions: list, show NAME, run NAME..., judge NAME...");
}

}  // namespace

std::function<int()> setup_lab(CLI::App& app) {
  auto o = std::make_shared<LabFlags>();
  o->bench.no_mfu = true;
  app.add_option("ACTION", o->arguments,
                 "list, show NAME|FILE.toml, run NAME...|FILE.toml..., judge NAME...|FILE.toml...");
  app.add_flag("--all", o->all, "run, judge: all available experiments")->group("Experiments");
  app.add_option("--scale", o->lab.scale, "tiny (seconds to minutes, also on a CPU), small (minutes on a GPU), full")
      ->capture_default_str()
      ->group("Experiments");
  app.add_option("--budget", o->budget, "time limit: no measurement starts after it, e.g. 90s, 10m, 1h")
      ->type_name("TIME")
      ->group("Experiments");
  app.add_option("--rounds", o->lab.rounds,
                 "1: one round, for kinds that have two; half the time, noise from one measurement")
      ->check(CLI::Range(1, 2))
      ->capture_default_str()
      ->group("Experiments");
  app.add_flag("--resume", o->lab.resume, "reuse the measurements in the newest record of the same experiment")
      ->group("Experiments");
  app.add_option("--data", o->lab.data, "text file or prepared data to train on (default: generated text)")
      ->type_name("PATH")
      ->group("Experiments");
  app.add_option("--seed", o->bench.seed, "seed for weights and tokens")->capture_default_str()->group("Experiments");
  for (const char* flag : {"--budget", "--rounds", "--resume", "--data", "--seed"})
    o->measurement.push_back(app.get_option(flag));
  add_json_option(app, o->lab.json);
  add_record_options(app, o->bench.store);
  add_device_options(app, o->device);
  add_config_option(app);
  return [o] {
    StopSignal signal(StopSignal::measuring_grace);
    return act(*o);
  };
}

}  // namespace crest
