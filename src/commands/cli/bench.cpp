// crest bench: measures a forward pass, forward and backward, or a training step.
// bench/bench_grid.cpp has grids; bench/bench_compare.cpp has A against B, peers and the noise
// floor. Every measurement is recorded in the run store.
#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "bench/bench_grid.h"
#include "bench/bench_product.h"
#include "cli/command.h"
#include "cli/options.h"
#include "cli/overlay_flags.h"
#include "cli/rank_flags.h"
#include "cli/store_options.h"
#include "core/error.h"
#include "host/stop_signal.h"

namespace crest {

// Options foreign to a product.
static void refuse_recipe(const BenchOptions& o, const RankGroup* group) {
  std::string given = o.compares() ? "--ab, --peer, --noise" : o.resume ? "--resume" : group ? "--ranks" : "";
  if (o.flush_cache) given = "--flush-cache";
  for (auto& [name, values] : o.base.recipe.given)
    if (!values.empty() && name != "precision") given = "--" + name;
  if (!given.empty())
    fail_usage("a product has sizes and precisions only", given,
               "Omit it, or omit --product to measure a training step.");
}

static int run_bench(BenchOptions& o, RankGroup* group) {
  validate(o);
  if (!o.product.empty()) {
    refuse_recipe(o, group);
    BenchMeasure bench(o);
    return run_products(bench);
  }
  if (group && o.compares())
    fail_usage("a comparison measures single processes", "--ranks",
               "Measure each recipe by itself with --ranks, or use --data-parallel.");
  std::vector<BenchPhase> phases = phases_of(o.phase);
  std::vector<MeasurementOptions> measurements = measurements_of(o);
  BenchMeasure bench(o, group);
  std::vector<BenchTask> tasks;  // all recipes are checked before the first is measured
  for (auto& measurement : measurements)
    for (BenchPhase phase : phases) {
      tasks.push_back(bench.task(measurement, phase));
      tasks.back().index = tasks.size() - 1;
    }
  if (group && !group->leads()) {
    follow_runs(bench, *group, tasks);
    return 0;
  }
  if (!o.compares()) {
    bench.open_store();
    confirm(bench, tasks);
    return run_grid(bench, tasks);
  }
  if (tasks.size() != 1)
    fail_usage("a comparison needs exactly one recipe and one phase", o.ab.empty() ? "--peer, --noise" : "--ab",
               "Give no lists, and choose one --phase.");
  bench.open_store();
  AbRule rule = comparison_rule(o);
  if (o.ab.empty()) return run_comparison(bench, rule, tasks[0]);
  MeasurementOptions second = measurements[0];
  overlay_flags(o.ab, second);
  return run_comparison(bench, rule, tasks[0], &second);
}

static void add_bench_options(CLI::App& app, BenchOptions& o, GivenSettings& ranks) {
  auto not_empty = [](const std::string& text) { return text.empty() ? std::string("the value is empty") : ""; };
  auto option = [&](const char* flag, auto& value, const char* help) {
    return app.add_option(flag, value, help)->capture_default_str()->group("Measurement");
  };
  option("--phase", o.phase,
         "forward (inference), forward-saved (keeps activations), backward (forward + backward), step, "
         "decode (a token of crest sample, after --seq - 1 others), or all (forward, backward and step)");
  app.add_option("--samples", o.samples,
                 "runs to measure (rounds, in a comparison); default: until the median is known to 1%")
      ->group("Measurement");
  option("--warmup", o.warmup, "warm-up runs, not measured");
  option("--max-seconds", o.max_seconds,
         "time limit per recipe without --samples, warm-up included (at least 1 run is made)");
  auto once = [&](const char* flag, std::string& value, const char* type, const char* help) {
    auto set = [&value, flag](const std::vector<std::string>& given) {
      if (given.size() > 1)
        fail_usage(fmt::format("given {} times", given.size()), flag,
                   "A comparison has two sides: give it once, and compare with each in a command of its own.");
      value = given[0];
    };
    app.add_option_function<std::vector<std::string>>(flag, set, help)
        ->allow_extra_args(false)
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
        ->type_name(type)
        ->group("Measurement")
        ->check(not_empty);
  };
  once("--ab", o.ab, "FLAGS", "compare with a second recipe, this one changed by 'FLAGS'; runs are interleaved");
  once("--peer", o.peer, "COMMAND", "compare with 'COMMAND', which must print a JSON line with step_ms_median or ms");
  app.add_flag("--noise", o.noise, "compare the recipe with itself: the noise floor of this machine")
      ->group("Measurement");
  app.add_option("--product", o.product,
                 "measure matrix products instead of a step: sizes M x N x K, e.g. 4096x4096x4096,1024x50304x768; "
                 "--precision (fp64 to int8, a list) chooses the arithmetic")
      ->type_name("MxNxK,...")
      ->group("Measurement")
      ->check(not_empty);
  option("--timeout", o.timeout, "time limit for one run of the peer, in seconds");
  option("--seed", o.seed, "seed for weights and tokens");
  app.add_flag("--flush-cache", o.flush_cache, "flush the caches before every run")->group("Measurement");
  option("--flops-convention", o.convention, "palm (6N + 12 L d T per token) or executed (sum over instructions)");
  app.add_option("--peak", o.peak, "peak FLOP/s for MFU (default: measured, which takes about a second)")
      ->group("Measurement");
  app.add_flag("--no-mfu", o.no_mfu, "do not measure the peak or report MFU")->group("Measurement");
  const char* grid = "Grid (to make one, give a recipe flag or --threads a list: A,B)";
  app.add_flag("--resume", o.resume, "continue the newest grid of the same recipes: measure only the missing ones")
      ->group(grid);
  app.add_flag("--yes", o.yes, "measure long grids without asking")->group(grid);
  add_json_option(app, o.json);
  add_record_options(app, o.store);
  add_recipe_options(app, o.base.recipe);
  add_rank_options(app, ranks);
  add_device_options(app, o.base.device);
  app.remove_option(app.get_option("--threads"));
  app.add_option("--threads", o.threads, "CPU threads per step (0: all usable); a list makes a grid")
      ->allow_extra_args(false)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->group("Device");
  add_config_option(app);
}

std::function<int()> setup_bench(CLI::App& app) {
  auto o = std::make_shared<BenchOptions>();
  auto ranks = std::make_shared<GivenSettings>();
  add_bench_options(app, *o, *ranks);
  return [o, ranks] {
    return run_in_ranks(o->base.recipe, o->base.device, *ranks, {}, [&](RankGroup* group) {
      StopSignal signal(StopSignal::measuring_grace);
      return run_bench(*o, group);
    });
  };
}

}  // namespace crest
