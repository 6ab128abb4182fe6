// --recompute budget=SIZE with predicted times (plan/recompute_budget.h searches).
#pragma once
#include <string>

#include "plan/recompute_budget.h"

namespace crest {

// Predicts steps from the calibration of the device, or from its data sheet, or else assumes rates.
// device_name: what --device named.
StepTimer predicted_step_times(const CompiledSession& plain, const Device& device, const std::string& device_name = "");

// recompute_within_budget() with these times. Prints what was chosen to standard error, unless
// quiet.
Recipe within_budget(Recipe recipe, const Device& device, const std::string& device_name = "", bool quiet = false);

}  // namespace crest
