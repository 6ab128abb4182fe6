// Learning-rate schedules: pure functions of the step.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace crest {

enum class ScheduleKind { cosine, wsd, linear, constant };
enum class DecayShape { sqrt, linear, cosine };

struct Schedule {
  ScheduleKind kind = ScheduleKind::cosine;
  double lr = 6e-4;      // the peak
  double min_lr = 6e-5;  // at the end; constant ignores it
  int64_t warmup_steps = 0;
  int64_t total_steps = 1;
  double decay_share = 0.2;  // wsd: fraction of total_steps, at the end
  DecayShape decay_shape = DecayShape::sqrt;
};

// Learning rate of step s = 0, 1, ... (W warm-up steps, N total, peak, min; t = progress of the
// decay in [0, 1]):
//   s < W       peak (s + 1) / (W + 1), as nanoGPT: never zero, and the peak is reached at s = W
//   cosine      min + (peak - min) (1 + cos(pi t)) / 2        t = (s - W) / (N - W)   (Loshchilov and Hutter 2017)
//   linear      min + (peak - min) (1 - t)                    t as for cosine
//   wsd         peak until N - D, then min + (peak - min) f(t), t = (s - N + D) / D, D = decay_share N, at most N - W
//               (warm-up, stable, decay); f is 1 - sqrt(t) (Haegele et al. 2024, arXiv:2405.18392), 1 - t, or
//               (1 + cos(pi t)) / 2
//   constant    peak
// From s = N on: min (constant: peak).
double learning_rate(const Schedule& schedule, int64_t step);

// Throws a usage error with the flag's name: negative or infinite rates, min_lr above lr, a warm-up
// longer than the run, or a decay for schedules without one.
void validate(const Schedule& schedule);

// "cosine", ... The parser throws a usage error with the nearest name.
std::string_view name(ScheduleKind kind);
ScheduleKind parse_schedule(std::string_view text);
const std::vector<std::string>& schedule_names();
// For decays: "sqrt", ...
DecayShape parse_decay_shape(std::string_view text);
const std::vector<std::string>& decay_shape_names();

}  // namespace crest
