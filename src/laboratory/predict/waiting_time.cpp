#include "predict/waiting_time.h"

#include <algorithm>
#include <cmath>

#include "predict/time_model.h"
#include "profile/overlap.h"

namespace crest {

namespace {

// Two H200, gpt2-124M, 16 sequences a rank: they waited 0.058 and 0.230 ms in a step and computed
// for 25.07 ms (docs/results/h200/ranks.md). The mean wait of two ranks is 0.5642 of the spread. Of
// 12 and 9 steps on one H200, the spread was 1.3% and 0.9% (h200/ladder/runs.jsonl.xz).
constexpr double gpu_spread = (0.058 + 0.230) / 2 / 25.07 / 0.5642;

}  // namespace

// The integral of 1 - F(x)^n above 0 minus that of F(x)^n below, for the normal distribution F. The
// trapezoidal rule is exact to 1e-9 here, since the integrand is smooth and vanishes at both ends.
double expected_maximum(int n) {
  if (n <= 1) return 0;
  constexpr double end = 10, step = 1.0 / 64;
  double sum = 0;
  for (double x = step / 2; x < end; x += step) {
    const double above = std::erfc(x / std::sqrt(2.0)) / 2;  // 1 - F(x) = F(-x)
    sum += -std::expm1(n * std::log1p(-above)) - std::exp(n * std::log(above));
  }
  return sum * step;
}

StepSpread step_spread(const Device& device, const TimeModel* calibrated) {
  if (calibrated)
    if (const double measured = calibrated->spread(); measured > 0) return {measured, "calibration"};
  if (device.kind == "cuda") return {gpu_spread, "two H200"};
  return {};
}

void add_waiting(PredictedStep& step) {
  double computing = 0;
  for (const ProfileInstr& row : step.profile.instrs)
    if (!communicates(row) && !crosses_host_link(row)) computing += row.ms;
  step.waiting_ms = step.spread.share * computing * expected_maximum(step.ranks);
  step.ms += step.waiting_ms;
  step.low_ms += step.waiting_ms / waiting_factor, step.high_ms += step.waiting_ms * waiting_factor;
}

}  // namespace crest
