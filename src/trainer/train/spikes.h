// The response of a run to jumps of its loss: --on-spike.
#pragma once
#include <optional>

#include "train/run_files.h"
#include "train/run_report.h"
#include "train/run_state.h"
#include "train/spike_watch.h"

namespace crest {

class Spikes {
 public:
  // Both must outlive it. Only the process that leads reports and decides.
  Spikes(const TrainOptions& options, RunReport& report) : o_(options), report_(report) {}

  // Throws for --on-spike rollback in a run that cannot go back.
  void check_settings() const;
  // Takes the losses of the log.
  void continue_from(const RunFiles& files);
  // Takes the loss of a step, and reports a jump.
  void add(int64_t step, double loss);

  // The last step before a jump to undo, which rank 0 tells the others; -1: none.
  int64_t calm_step() const { return calm_step_; }
  void set_calm_step(int64_t step) { calm_step_ = step; }
  // Where to return to; none: training goes on. Call it on all ranks, after saves have ended.
  // per_step: samples of a step.
  std::optional<Rollback> rollback(const RunState& state, const RunFiles& files, int64_t per_step);

 private:
  const TrainOptions& o_;
  RunReport& report_;
  SpikeWatch watch_;
  int64_t calm_step_ = -1;
};

}  // namespace crest
