#include "train/run_schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "checkpoint/checkpoint_manifest.h"
#include "core/error.h"
#include "passes/optimizers.h"
#include "train/training_settings.h"

namespace crest {

// Steps for this many passes. The last step may go beyond them.
static int64_t steps_in_passes(double epochs, double epoch) {
  if (epoch <= 0)
    fail_usage("the length of the data is unknown, so it has no passes to count", "--epochs", "Give --steps.");
  const double steps = std::ceil(epochs * epoch * (1 - 1e-12));  // 3 x 7/3 steps are 7
  if (steps > most_checkpoint_steps) fail_usage(fmt::format("{:g} passes are {:.3g} steps", epochs, steps), "--epochs");
  return std::max<int64_t>(1, int64_t(steps));
}

RunSchedule::RunSchedule(const TrainOptions& o, const Recipe& recipe, int64_t total_steps, double epoch)
    : o_(o), default_rate_(default_learning_rate(recipe)) {
  if (o_.steps > 0 && o_.epochs > 0)
    fail_usage("--steps and --epochs both set the length of the run", "--epochs", "Give only one of them.");
  steps_ = o_.steps > 0      ? o_.steps
           : o_.epochs > 0   ? steps_in_passes(o_.epochs, epoch)
           : total_steps > 0 ? total_steps
                             : 1000;
  fitting_ = o_.steps == 0 && o_.epochs == 0 && o_.max_seconds > 0 && total_steps == 0;
  apply();
  validate(schedule_);
}

// At least 2 / (1 - beta2) = 40 steps (Ma and Yarats 2019): shorter warm-ups cause loss spikes
// (docs/results/learning_rate.md). Short runs use a fifth of their steps.
static int64_t default_warmup(int64_t steps) {
  const int64_t least = std::min({int64_t(40), std::max<int64_t>(1, steps / 5), steps / 2});
  return std::clamp<int64_t>(steps / 50, least, 2000);
}

void RunSchedule::apply() {
  schedule_.kind = parse_schedule(o_.schedule);
  schedule_.decay_share = o_.decay_share, schedule_.decay_shape = parse_decay_shape(o_.decay_shape);
  schedule_.lr = o_.lr > 0 ? o_.lr : default_rate_;
  schedule_.min_lr = o_.min_lr >= 0 ? o_.min_lr : schedule_.lr / 10;
  schedule_.total_steps = steps_;
  schedule_.warmup_steps = o_.warmup >= 0 ? o_.warmup : default_warmup(steps_);
  // All steps before the fit are warm-up steps, so their learning rates do not depend on the fit.
  // The run can then be repeated with the fitted number of steps.
  if (o_.max_seconds > 0 && o_.steps == 0 && o_.epochs == 0 && (fitting_ || fitted_))
    schedule_.warmup_steps = std::max<int64_t>(o_.warmup, fit_after);
  val_every_ = o_.val_every < 0 ? std::max<int64_t>(1, steps_ / 10) : o_.val_every;
  save_every_ = o_.save_every < 0 ? std::max<int64_t>(1, (steps_ + 3) / 4) : o_.save_every;
}

void RunSchedule::fit(int64_t step, double step_seconds, double spent) {
  double budget = std::max(0.0, o_.max_seconds - spent) * 0.93;  // the rest is for validation, saving and the sample
  steps_ = step + std::max<int64_t>(1, int64_t(budget / step_seconds));
  fitting_ = false, fitted_ = true;
  apply();
}

std::optional<std::string> RunSchedule::jump(const StepRow& last, int64_t step) const {
  const double now = rate(last.step - 1);
  if (!(last.lr > 0 && now > last.lr * (1 + 1e-9) && step < steps_)) return {};
  return fmt::format(
      "note     the learning rate jumps up here: step {} used {:.3g}, the new schedule of {} steps has {:.3g} there",
      last.step, last.lr, steps_, now);
}

bool RunSchedule::over(double seconds) const {
  return o_.max_seconds > 0 && seconds > o_.max_seconds * (fitted_ ? 1.15 : 1.0);
}

TrainOptions RunSchedule::used(const Recipe& recipe) const {
  TrainOptions resolved = o_;
  resolved.recipe = recipe;
  resolved.lr = schedule_.lr;
  resolved.min_lr = schedule_.min_lr;
  if (fitting_) return resolved;  // the number of steps is unknown yet
  resolved.steps = steps_;
  resolved.warmup = schedule_.warmup_steps;
  resolved.val_every = val_every_;
  resolved.save_every = save_every_;
  return resolved;
}

}  // namespace crest
