// crest advise: changes of a model and its settings for a device.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "advise/advise.h"
#include "cli/command.h"
#include "cli/options.h"
#include "core/error.h"
#include "core/io.h"
#include "core/text.h"
#include "core/to_stderr.h"
#include "host/stop_signal.h"
#include "plan/explain.h"
#include "plan/plan_report.h"
#include "predict/defaults.h"
#include "terminal/fit_table.h"
#include "terminal/print_json.h"

namespace crest {

namespace {

struct AdviseFlags {
  RecipeOptions recipe;
  DeviceOptions device;
  std::string run, calibration;
  AdviceOptions advice;
  bool json = false;
};

// The recipe settings of a run's config.toml, unless they were given.
void take_settings(const CLI::App& train, const std::string& run, GivenSettings& given) {
  std::string config = join_path(run, "config.toml"), model = join_path(run, "model.toml");
  if (!path_exists(config))
    fail("not a run folder: it has no config.toml", printable(run), "Give --run the folder of a run (its --out).");
  GivenSettings of_run = read_config(train, config);
  if (path_exists(model)) of_run["model"] = {model};  // also where the folder was moved
  for (auto& row : recipe_settings())
    if (auto it = of_run.find(row.name); it != of_run.end() && given[row.name].empty()) given[row.name] = it->second;
}

int run_advise(AdviseFlags& o, const std::function<void(GivenSettings&)>& from_run) {
  if (!(o.advice.max_seconds > 0 && o.advice.max_seconds <= 3600))
    fail_usage(fmt::format("--max-seconds {}", o.advice.max_seconds), "--max-seconds",
               "It must be above 0 and at most 3600.");
  StopSignal signal(StopSignal::measuring_grace);
  AdviceCase c;
  c.mesh = take_explained_mesh(o.recipe.given);
  if (!o.run.empty()) from_run(o.recipe.given), c.waits = waits_of_run(o.run);
  c.device = o.device.find();
  if (o.advice.measure && c.device.described)
    fail_usage("this machine does not have the device, so it cannot be measured", "--measure",
               "Omit --measure, or --device.");
  c.given = o.recipe.finish(default_model(c.device));
  c.limit = limit_of_rank(c.given, c.device, o.device.limit(c.device));
  c.given = with_defaults(c.given, rank_device(c.given, c.device), c.limit, o.device.device);
  c.recipe = resolve(c.given, c.device);
  if (o.advice.measure && c.recipe.ranks > 1)
    fail_usage("steps of several processes are not measured", "--measure", "Give --ranks 1, or omit --measure.");
  std::optional<Calibration> calibration = find_calibration(o.calibration, c.device);
  c.calibration = calibration ? &*calibration : nullptr;
  std::optional<DataSheet> sheet = sheet_of(c.device, o.device.device);
  c.sheet = sheet ? &*sheet : nullptr;
  o.advice.check_interrupt = [] {
    if (StopSignal::requested()) throw Error(Exit::interrupted, "interrupted", "crest advise");
  };
  AdviceReport report = advise(c, o.advice, [](const std::string& line) { to_stderr("{}\n", printable(line, 400)); });
  if (o.json)
    print_json(to_json(c, report));
  else
    fmt::print("{}", text_of(c, report, output_width()));
  return 0;
}

}  // namespace

std::function<int()> setup_train(CLI::App&);

std::function<int()> setup_advise(CLI::App& app) {
  auto o = std::make_shared<AdviseFlags>();
  const char* group = "Advice";
  app.add_option("--run", o->run,
                 "take the settings of this training run (flags given here win) and its time of waiting for data")
      ->type_name("RUN")
      ->group(group);
  app.add_flag("--measure", o->advice.measure,
               "measure the gain of each change: a training step with it and without, in interleaved rounds")
      ->group(group);
  app.add_option("--max-seconds", o->advice.max_seconds, "time limit of a measured change; a verdict needs 4 rounds")
      ->capture_default_str()
      ->group(group);
  app.add_option("--seed", o->advice.seed, "seed for weights and tokens")->capture_default_str()->group(group);
  app.add_option(
         "--calibration", o->calibration,
         "predict with this file (default: the one crest calibrate wrote for this device, else Crest's own for this "
         "model of GPU)")
      ->type_name("FILE")
      ->group(group);
  add_json_option(app, o->json);
  add_recipe_options(app, o->recipe);
  add_device_options(app, o->device);
  add_config_option(app);
  return [o] {
    return run_advise(*o, [&](GivenSettings& given) {
      CLI::App train;  // the allowed keys of config.toml
      auto keep = setup_train(train);
      take_settings(train, o->run, given);
    });
  };
}

}  // namespace crest
