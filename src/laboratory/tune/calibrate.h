// Measures a device once, to predict times for it: profiles of steps of small slices of models, at
// several sizes and precisions. Two layers have the same rows as the whole model. Products are
// timed inside a step, with its clocks and caches.
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

// The steps to measure: all steps for this kind of device within `limit` bytes. A GPU gets fewer in
// precisions other than bf16. precisions: empty or auto: all with fast support on the device.
std::vector<CalibrationStep> calibration_steps(const Device& device, int64_t limit,
                                               const std::vector<std::string>& precisions);

struct StepMeasure {
  double max_seconds = 2;  // for plain runs, and for profiled runs
  uint64_t seed = 1337;
  std::vector<ProfileRate> rates;            // missing rates are measured
  std::function<void()> before_run = [] {};  // may throw to end the measurement
};
// Profiles a step on random tokens. step_ms are times of steps in sequence, as in training. Throws
// does_not_fit, and `interrupted`.
Profile measure_step(const Recipe& recipe, const Device& device, int64_t limit, const StepMeasure& how);
// The device limits for the arithmetic of these steps: known or measured. Once `no_time` is true,
// the sheet's rates if there is a sheet.
std::vector<ProfileRate> step_rates(const std::vector<CalibrationStep>& steps, const Device& device,
                                    const std::vector<ProfileRate>& known = {}, const DataSheet* sheet = nullptr,
                                    const std::function<bool()>& no_time = {});
// Rates of a GPU's link to the host: in one direction, and in each one during an update with its
// state in host memory. Empty on a CPU.
std::vector<ProfileRate> link_rates(const Device& device, int64_t limit, const StepMeasure& how);

// A source for steps measured from now on.
CalibrationSource source_here(const Device& device);

// progress: called before each step. Adds the steps to `so_far`.
Calibration calibrate(const Device& device, int64_t limit, const std::vector<CalibrationStep>& steps,
                      const StepMeasure& how, const std::function<void(size_t, const CalibrationStep&)>& progress,
                      Calibration so_far = {});

}  // namespace crest
