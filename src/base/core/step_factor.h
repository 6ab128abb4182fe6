// Factors of an optimizer step known only at run time: functions of the step's scalars.
#pragma once
#include <cmath>
#include <cstdint>
#include <optional>
#include <string_view>

#include "core/host_device.h"
#include "core/scalars.h"

namespace crest {

// step_size: lr / (1 - beta^t), root_correction: 1 / sqrt(1 - beta^t), where t is the step number,
// starting at 1.
enum class StepFactor : int32_t { one, grad_factor, lr, step_size, root_correction };

// 1 - beta^t, given the natural logarithm of beta (-infinity for 0).
CREST_BOTH inline double bias_correction(double log_beta, int64_t adam_step) {
  return -expm1(double(adam_step + 1) * log_beta);
}

CREST_BOTH inline double step_factor(StepFactor factor, double log_beta, const Scalars& s) {
  switch (factor) {
    case StepFactor::one: return 1;
    case StepFactor::grad_factor: return double(s.grad_factor);
    case StepFactor::lr: return double(s.lr);
    case StepFactor::step_size: return double(s.lr) / bias_correction(log_beta, s.adam_step);
    case StepFactor::root_correction: return 1 / sqrt(bias_correction(log_beta, s.adam_step));
  }
  return 1;
}

inline std::optional<StepFactor> parse_step_factor(std::string_view text) {
  constexpr std::string_view names[] = {"one", "grad_factor", "lr", "step_size", "root_correction"};
  for (int i = 0; i < 5; ++i)
    if (text == names[i]) return StepFactor(i);
  return std::nullopt;
}

}  // namespace crest
