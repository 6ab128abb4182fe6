// A training run before its settings are checked:
// settings as texts, and everything else.
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
  std::vector<std::string> derived;  // keys of settings computed by the run (derived_flag)
  DeviceOptions device;
  std::vector<std::string> texts;      // files and folders to train on, instead of the setting `data`
  TextOptions text;                    // for texts
  std::string resume;                  // the run to continue; "": a new one
  std::optional<RecordOptions> store;  // none: the run is not recorded
  FlagLayer flags;                     // all given settings, for RUN/config.toml
  // The caller may set out, overwrite, stop_after, save_mode, quiet, json, on_step, on_validation
  // and group. train() sets the rest from the settings above.
  TrainOptions train;

  // Times for --recompute budget=SIZE; none: assumed_step_times.
  StepTimerOf step_timer;
  // For stages of a pipeline; empty: cut by FLOPs.
  StageCostsOf stage_costs;
  // Prepares texts, for callers with progress; none: prepare_text.
  std::function<PreparedText(const TrainRequest&)> prepare;
  // Gets lines for the user; none: they are lost.
  std::function<void(const std::string&)> print;
};

}  // namespace crest
