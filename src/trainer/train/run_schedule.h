// A run's number of steps, learning rates, and the steps with validations and saves.
#pragma once
#include <optional>
#include <string>

#include "train/run.h"
#include "train/schedule.h"
#include "train/step_row.h"

namespace crest {

class RunSchedule {
 public:
  // The options must outlive it. total_steps: the continued run's; 0: none, or not fitted yet.
  // epoch: steps of one pass over the training data; 0: unknown, and --epochs is refused.
  RunSchedule(const TrainOptions& options, const Recipe& recipe, int64_t total_steps, double epoch);

  // Steps to measure before the total is fitted to --max-seconds.
  static constexpr int fit_after = 12;
  // Whether the number of steps is still to be fitted.
  bool fitting() const { return fitting_; }
  // Fits the total number of steps: after `step`, as many as the limit allows, given `spent`
  // seconds so far.
  void fit(int64_t step, double step_seconds, double spent);

  int64_t steps() const { return steps_; }
  const Schedule& schedule() const { return schedule_; }
  double rate(int64_t step) const { return learning_rate(schedule_, step); }
  int64_t val_every() const { return val_every_; }    // 0: never
  int64_t save_every() const { return save_every_; }  // 0: only at the end
  bool validates_at(int64_t step) const { return val_every_ && step % val_every_ == 0; }
  bool saves_at(int64_t step) const { return save_every_ && step % save_every_ == 0; }
  // A note for a run continued after `step`, if the rate jumps up behind its `last` step. More
  // steps stretch the schedule, and another --lr moves it.
  std::optional<std::string> jump(const StepRow& last, int64_t step) const;
  // Whether the time limit ends the run. Fitted steps may exceed it slightly.
  bool over(double seconds) const;
  // The options with the values in use. Values unknown before the fit stay as given.
  TrainOptions used(const Recipe& recipe) const;

 private:
  void apply();

  const TrainOptions& o_;
  double default_rate_;
  Schedule schedule_;
  int64_t steps_ = 0, val_every_ = 0, save_every_ = 0;
  bool fitting_ = false, fitted_ = false;
};

}  // namespace crest
