// Saves checkpoints and removes old ones, one job at a time, in the background if training can
// continue.
#pragma once
#include <functional>
#include <future>
#include <string>
#include <vector>

#include "train/run_state.h"

namespace crest {

class Saver {
 public:
  // root: the checkpoints' folder. keep: how many to keep besides the best one; 0: all. background:
  // copies tensors and writes them in a thread.
  Saver(std::string root, int keep, bool background, Report warn)
      : root_(std::move(root)), keep_(keep), background_(background), warn_(std::move(warn)) {}

  // Before the run: throws if the disk has no space for a checkpoint of `bytes`. Returns a warning
  // if there is no space for the next `saves` checkpoints in addition to the kept ones; "": enough.
  std::string check_space(uint64_t bytes, int64_t saves) const;
  // The last saved step; -1: none.
  int64_t saved_step() const { return saved_step_; }
  // Saves, unless this step was already saved. last_good_step: the last step with finite gradients.
  // best: labels the checkpoint as the best one.
  void save(Engine& engine, const RunState& state, const std::string& config_toml, const ModelText& text,
            int64_t last_good_step, bool best);
  // Removes older checkpoints. Saving does not: old ones go only after the next step's finite
  // gradients have confirmed the new weights.
  void prune();
  // Collects a finished job; throws its error.
  void poll();
  // Waits for the current job; throws its error.
  void finish();
  // For a run ending with another error: only warns.
  void settle();
  bool busy() const { return job_.valid(); }

 private:
  using Work = std::function<std::vector<std::string>()>;  // returns warnings
  void start(Work work);

  std::string root_;
  int keep_;
  bool background_;
  Report warn_;
  int64_t saved_step_ = -1;
  bool prune_pending_ = false;                 // old checkpoints were not removed after the last save
  std::future<std::vector<std::string>> job_;  // valid from the start of a job until its end is collected
};

}  // namespace crest
