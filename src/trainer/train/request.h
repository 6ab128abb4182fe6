// A training run before its settings are checked: settings as text, and all other options.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "data/prepare_text.h"
#include "device/device_options.h"
#include "plan/defaults.h"
#include "plan/recipe_settings.h"
#include "plan/recompute_budget.h"
#include "store/record_options.h"
#include "train/flag_layers.h"
#include "train/run.h"

namespace crest {

struct TrainRequest {
  RecipeOptions recipe;
  GivenSettings training;            // of training_settings()
  std::vector<std::string> derived;  // keys of computed settings (derived_flag)
  DeviceOptions device;
  std::vector<std::string> texts;      // files and folders of text; replaces the setting `data`
  TextOptions text;                    // options of `texts`
  std::string resume;                  // the run to continue; "": a new run
  std::optional<RecordOptions> store;  // none: do not record
  FlagLayer flags;                     // all given settings, for RUN/config.toml
  // The caller may set out, overwrite, stop_after, save_mode, quiet, json, on_step, on_validation
  // and group. train() derives the rest from the settings above.
  TrainOptions train;

  // Step times for --recompute budget=SIZE; none: assumed_step_times.
  StepTimerOf step_timer;
  // Times of layers for pipeline stages; empty: cut by FLOPs.
  StageCostsOf stage_costs;
  // Prepares texts, for callers with progress output; none: prepare_text.
  std::function<PreparedText(const TrainRequest&)> prepare;
  // Receives lines for the user; none: drops them.
  std::function<void(const std::string&)> print;
};

}  // namespace crest
