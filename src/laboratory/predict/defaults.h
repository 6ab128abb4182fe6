// Defaults of a recipe (plan/defaults.h), with predicted times for --recompute budget=SIZE.
#pragma once
#include <string>

#include "plan/defaults.h"

namespace crest {

// Predicts steps from the device's calibration, else from its data sheet, else with assumed rates.
// device_name: the text of --device.
StepTimer predicted_step_times(const CompiledSession& plain, const Device& device, const std::string& device_name = "");

// Predicted times of layers, to cut a model into stages. The device's calibration or data sheet, as
// above; without them none.
StageCostsOf predicted_costs_of_stages(const std::string& device_name = "");

// with_defaults() with predicted times. limit: bytes of one rank. Unless quiet, prints each choice
// to standard error.
Recipe with_defaults(Recipe recipe, const Device& device, int64_t limit, const std::string& device_name = "",
                     bool quiet = false);

}  // namespace crest
