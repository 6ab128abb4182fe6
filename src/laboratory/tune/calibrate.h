// Measures a device once, so that times can be predicted for it: profiles of steps of small slices
// of models, at several sizes and precisions. Rows of a slice of two layers are those of the whole
// model; products are timed where they run, at the clocks and in the caches of a step.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "device/data_sheet.h"
#include "model/recipe.h"
#include "predict/calibration.h"

namespace crest {

struct CalibrationStep {
  std::string text;  // "gpt2-124M, 2 layers, bf16, batch 1, seq 256"
  Recipe recipe;     // resolved
};

// The steps that are measured: those for the kind of device that fit `limit` bytes; on a GPU fewer
// in other precisions than bf16. precisions: empty or auto: all that the device computes fast.
std::vector<CalibrationStep> calibration_steps(const Device& device, int64_t limit,
                                               const std::vector<std::string>& precisions);

struct StepMeasure {
  double max_seconds = 2;  // of plain runs, and of profiled ones
  uint64_t seed = 1337;
  std::vector<ProfileRate> rates;            // measured if missing
  std::function<void()> before_run = [] {};  // may throw to end the measurement
};
// Profiles a step on random tokens; step_ms are those of steps in sequence, as in training. Throws
// does_not_fit, and `interrupted`.
Profile measure_step(const Recipe& recipe, const Device& device, int64_t limit, const StepMeasure& how);
// The limits of the device for the arithmetic of these steps: known, or else measured; once
// `no_time` is true, of the sheet if there is one.
std::vector<ProfileRate> step_rates(const std::vector<CalibrationStep>& steps, const Device& device,
                                    const std::vector<ProfileRate>& known = {}, const DataSheet* sheet = nullptr,
                                    const std::function<bool()>& no_time = {});

// A source of steps that are measured from now on.
CalibrationSource source_here(const Device& device);

// progress: called before each step. The steps are added to those of `so_far`.
Calibration calibrate(const Device& device, int64_t limit, const std::vector<CalibrationStep>& steps,
                      const StepMeasure& how, const std::function<void(size_t, const CalibrationStep&)>& progress,
                      Calibration so_far = {});

}  // namespace crest
