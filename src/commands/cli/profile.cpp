// crest profile: shows where the time and memory of a step go, by instruction, kernel, class, layer
// and phase.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "bench/profile_run.h"
#include "cli/command.h"
#include "cli/options.h"
#include "cli/rank_flags.h"
#include "cli/store_options.h"
#include "comm/rank_group.h"
#include "core/error.h"
#include "core/output_file.h"
#include "core/text.h"
#include "device/rank_device.h"
#include "host/stop_signal.h"
#include "plan/recipe_settings.h"
#include "predict/defaults.h"
#include "profile/pipeline_text.h"
#include "profile/profile_document.h"
#include "profile/profile_rates.h"
#include "profile/profile_text.h"
#include "terminal/fit_table.h"
#include "terminal/print_json.h"
#include "traces/chrome_trace.h"
#include "traces/memory_snapshot.h"
#include "train/defaults_of_first.h"

namespace crest {

namespace {

struct ProfileFlags {
  RecipeOptions recipe;
  DeviceOptions device;
  RecordOptions store;
  std::string phase = "step", rates, method = "auto", trace, snapshot;
  int samples = 0, warmup = 3, top = 15;
  double max_seconds = 10;
  uint64_t seed = 1337;
  ProfileView view;
  bool json = false;
};

ProfileTask task_of(const ProfileFlags& o, RankGroup* group) {
  ProfileTask task;
  task.group = group;
  task.rates = parse_rates(o.rates, "--rates");
  profile_shares(Profile(), o.view);  // checks --by and --sort before anything runs
  task.phase = parse_phase(o.phase);
  task.device = o.device.find();
  if (group) connect_devices(*group, task.device);
  task.limit = o.device.limit(task.device);
  auto chosen = [&](const Recipe& given) {
    return resolve(with_defaults(given, task.device, task.limit / given.data_parallel, "", group && !group->leads()),
                   task.device);
  };
  task.recipe = with_defaults_of_first(group, o.recipe.finish(default_model(task.device)), chosen);
  task.recipe = phase_recipe(std::move(task.recipe), task.phase, o.recipe);
  task.timers = o.method == "timers";
  task.samples = o.samples, task.warmup = o.warmup, task.max_seconds = o.max_seconds, task.seed = o.seed;
  task.store = o.store;
  return task;
}

void print_profile(const ProfileFlags& o, const Profile& p, const ProfileRun& run) {
  if (o.json) return print_json(profile_document(p, run.alternatives(), run.flops_per_token()));
  ProfileView view = o.view;
  view.top = size_t(o.top);
  view.color = use_color(STDOUT_FILENO);
  view.width = int(std::min<size_t>(output_width(), 100));
  std::string ranks = profile_ranks(p, view);
  if (!p.pipeline.is_null()) ranks = pipeline_text(p.pipeline, size_t(view.width), view.color);
  fmt::print("{}\n{}{}{}\n{}\n{}\n{}\n{}", profile_head(p, view), ranks, ranks.empty() ? "" : "\n",
             profile_times(p, view), profile_table(p, view), profile_summary(p, view), profile_memory(p, view),
             profile_alternatives(p, run.alternatives(), run.flops_per_token(), view));
}

int run_profile(const ProfileFlags& o, RankGroup* group) {
  ProfileRun run(task_of(o, group));
  if (group && !group->leads()) {
    run.follow();
    return 0;
  }
  Profile profile = run.measure();
  print_profile(o, profile, run);
  if (!o.trace.empty()) write_chrome_trace(profile, o.trace);
  if (!o.snapshot.empty()) write_memory_snapshot(profile, o.snapshot);
  return 0;
}

void validate_profile(const ProfileFlags& o) {
  auto in = [](int64_t value, int64_t low, int64_t high, const char* flag) {
    if (value < low || value > high)
      fail_usage(fmt::format("{} {}", flag, value), flag, fmt::format("It must be from {} to {}.", low, high));
  };
  in(o.samples, 0, 10'000, "--samples");
  in(o.warmup, 0, 1'000'000, "--warmup");
  in(o.top, 1, 100'000, "--top");
  if (!(o.max_seconds >= 0)) fail_usage("the time limit is negative", "--max-seconds");
  if (!o.trace.empty()) require_place_for(o.trace, "--trace");
  if (!o.snapshot.empty()) require_place_for(o.snapshot, "--snapshot");
  if (o.method != "auto" && o.method != "timers")
    fail_usage(fmt::format("'{}' is not a value of --method", printable(o.method)), "--method",
               did_you_mean(o.method, {"auto", "timers"}) + " Values: auto, timers.");
}

}  // namespace

std::function<int()> setup_profile(CLI::App& app) {
  auto o = std::make_shared<ProfileFlags>();
  auto ranks = std::make_shared<GivenSettings>();
  auto option = [&](const char* group, const char* flag, auto& value, const char* help) {
    app.add_option(flag, value, help)->capture_default_str()->group(group);
  };
  option("Measurement", "--phase", o->phase,
         "forward (inference), forward-saved (keeps activations), backward (forward + backward), step, or "
         "decode (a token of crest sample, after --seq - 1 others)");
  app.add_option("--samples", o->samples,
                 "runs to measure, interleaved with as many profiled runs; default: until the median is known to 1%, "
                 "from 6 to 50")
      ->group("Measurement");
  option("Measurement", "--warmup", o->warmup, "warm-up runs, not measured");
  option("Measurement", "--max-seconds", o->max_seconds,
         "time limit without --samples, warm-up included (at least 1 run is made)");
  option("Measurement", "--seed", o->seed, "seed for weights and tokens");
  app.add_option("--rates", o->rates,
                 "rates to compute floors from, e.g. bf16=9.9e14,bandwidth=4.8e12 (FLOP/s, B/s); default: measured")
      ->type_name("LIST")
      ->group("Measurement");
  option("Measurement", "--method", o->method, "auto (the device's own records, if it has them) or timers");
  option("Output", "--by", o->view.by, "rows of the table: place, instruction, kernel, class, layer or phase");
  option("Output", "--sort", o->view.sort, "order of the rows: time, gap (time above the floor), flops or bytes");
  option("Output", "--top", o->top, "number of rows");
  app.add_flag("--layers", o->view.layers, "one row per layer")->group("Output");
  app.add_option("--trace", o->trace, "write the step as a Chrome trace (opens in Perfetto)")
      ->type_name("FILE")
      ->group("Output");
  app.add_option("--snapshot", o->snapshot, "write the step's memory as a PyTorch memory snapshot")
      ->type_name("FILE")
      ->group("Output");
  add_json_option(app, o->json);
  add_record_options(app, o->store);
  add_recipe_options(app, o->recipe);
  add_rank_options(app, *ranks);
  add_device_options(app, o->device);
  add_config_option(app);
  return [o, ranks] {
    validate_profile(*o);
    return run_in_ranks(o->recipe, o->device, *ranks, {}, [&](RankGroup* group) {
      StopSignal signal(StopSignal::measuring_grace);
      return run_profile(*o, group);
    });
  };
}

}  // namespace crest
