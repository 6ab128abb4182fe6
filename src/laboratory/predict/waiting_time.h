// How long a step of several ranks waits for the slowest rank.
#pragma once
#include <string>

#include "predict/predicted_step.h"

namespace crest {

class TimeModel;

// The expected maximum of n independent standard normal variables. 0 for one.
double expected_maximum(int n);

// The spread of a rank's step: from the calibration, or else as measured between GPUs; none on a
// CPU without a calibrated spread. calibrated: null if the device has no calibration.
StepSpread step_spread(const Device& device, const TimeModel* calibrated);

// The predicted waiting time may be off by this factor: measured spreads are 0.2% to 3%.
inline constexpr double waiting_factor = 3;

// Ranks wait for each other once in a step: adds the expected maximum of their computing times
// above the mean to `waiting_ms` and `ms`. Needs `spread` and the rows' times.
void add_waiting(PredictedStep& step);

}  // namespace crest
