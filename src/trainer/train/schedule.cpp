#include "train/schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "core/error.h"
#include "core/text.h"

namespace crest {

// Falls from 1 to 0 for t from 0 to 1.
static double decayed(DecayShape shape, double t) {
  switch (shape) {
    case DecayShape::sqrt: return 1 - std::sqrt(t);
    case DecayShape::linear: return 1 - t;
    case DecayShape::cosine: return (1 + std::cos(std::numbers::pi * t)) / 2;
  }
  return 0;
}

double learning_rate(const Schedule& c, int64_t step) {
  if (step < c.warmup_steps) return c.lr * double(step + 1) / double(c.warmup_steps + 1);
  if (c.kind == ScheduleKind::constant) return c.lr;
  if (step >= c.total_steps) return c.min_lr;
  double span = c.lr - c.min_lr;
  double t = double(step - c.warmup_steps) / double(c.total_steps - c.warmup_steps);
  switch (c.kind) {
    case ScheduleKind::cosine: return c.min_lr + span * decayed(DecayShape::cosine, t);
    case ScheduleKind::linear: return c.min_lr + span * decayed(DecayShape::linear, t);
    case ScheduleKind::wsd: {
      double decay = std::min(c.decay_share * double(c.total_steps), double(c.total_steps - c.warmup_steps));
      double into = double(step) - (double(c.total_steps) - decay);
      return into <= 0 ? c.lr : c.min_lr + span * decayed(c.decay_shape, into / decay);
    }
    case ScheduleKind::constant: break;
  }
  return c.lr;
}

void validate(const Schedule& c) {
  if (!std::isfinite(c.lr) || c.lr < 0) fail_usage(fmt::format("{} is not a learning rate", c.lr), "--lr");
  bool decays = c.kind != ScheduleKind::constant;
  if (decays && (!std::isfinite(c.min_lr) || c.min_lr < 0 || c.min_lr > c.lr))
    fail_usage(fmt::format("{} is not between 0 and the peak {}", c.min_lr, c.lr), "--min-lr",
               "Lower it, raise --lr, or use --schedule constant.");
  if (c.total_steps < 1) fail_usage(fmt::format("the number of steps is {}", c.total_steps), "--steps");
  if (c.warmup_steps < 0 || c.warmup_steps > c.total_steps)
    fail_usage(fmt::format("{} warm-up steps do not fit into {} steps", c.warmup_steps, c.total_steps), "--warmup");
  if (!(c.decay_share >= 0 && c.decay_share <= 1))
    fail_usage(fmt::format("{} is not a share of the steps", c.decay_share), "--decay-share", "Give 0 to 1.");
  const Schedule defaults;
  for (auto [flag, given] : {std::pair{"--decay-share", c.decay_share != defaults.decay_share},
                             {"--decay-shape", c.decay_shape != defaults.decay_shape}})
    if (given && c.kind != ScheduleKind::wsd)
      fail_usage(fmt::format("schedule {} has no such decay", name(c.kind)), flag,
                 fmt::format("Add --schedule wsd, or leave out {}.", flag));
}

const std::vector<std::string>& schedule_names() {
  static const std::vector<std::string> names = {"cosine", "wsd", "linear", "constant"};
  return names;
}

const std::vector<std::string>& decay_shape_names() {
  static const std::vector<std::string> names = {"sqrt", "linear", "cosine"};
  return names;
}

DecayShape parse_decay_shape(std::string_view text) {
  auto& names = decay_shape_names();
  auto found = std::find(names.begin(), names.end(), text);
  if (found == names.end())
    fail_usage(fmt::format("'{}' is not a shape of a decay", printable(text)), "--decay-shape",
               "Known: " + join(names, ", ") + ".");
  return DecayShape(found - names.begin());
}

std::string_view name(ScheduleKind kind) { return schedule_names()[size_t(kind)]; }

ScheduleKind parse_schedule(std::string_view text) {
  auto& names = schedule_names();
  auto found = std::find(names.begin(), names.end(), text);
  if (found == names.end()) {
    std::string hint = did_you_mean(text, names);
    fail_usage(fmt::format("'{}' is not a schedule", printable(text)), "--schedule",
               (hint.empty() ? "" : hint + " ") + "Known: " + join(names, ", ") + ".");
  }
  return ScheduleKind(found - names.begin());
}

}  // namespace crest
