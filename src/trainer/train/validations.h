// The validations of a run, and what they decide: which weights are the best (--keep-best), and
// whether the run ends early (--patience, --until-loss).
#pragma once
#include <cstdint>
#include <limits>
#include <optional>

#include "train/engine.h"
#include "train/run_data.h"
#include "train/run_files.h"
#include "train/run_report.h"
#include "train/run_schedule.h"
#include "train/run_state.h"

namespace crest {

class Validations {
 public:
  // All must outlive it.
  Validations(const TrainOptions& options, RunData& data, RunState& state) : o_(options), data_(data), state_(state) {}

  // Throws for --keep-best, --patience, --until-loss and --min-delta in a run where they decide
  // nothing.
  void check_settings(const RunSchedule& schedule) const;
  // Takes over the log's validations that the checkpoint has not: of an older program, or of a run
  // that was killed between a validation and the save. With --keep-best, labels the best of the
  // checkpoints that are there. All ranks call it.
  void continue_from(const RunFiles& files);

  // Of a validation: of the source with the most batches.
  struct Size {
    int64_t batches = 0, rows = 0;  // rows of a batch; 0: no validation
  };
  Size size(const Engine& engine) const;
  // Of the current weights. With several sources, val_loss is the mean of their losses with their
  // shares of the samples; sources without a validation split do not count. All ranks call it.
  // Throws RunData::Failed or Engine::PeerDidNotRead if a rank could not read its samples.
  ValidationRow measure(Engine& engine);

  // Whether --keep-best keeps the current weights.
  bool is_best() const { return o_.keep_best && kept_step_ == state_.step; }
  // Why the run ends before its last step: --until-loss or --patience.
  std::optional<RunEnd> end() const;
  // Sets what the end of a run says about its validations.
  void add_to(RunReport::Summary& end, const RunFiles& files, int64_t tokens_per_step) const;

 private:
  const TrainOptions& o_;
  RunData& data_;
  RunState& state_;
  void find_kept(const RunFiles& files);
  // The step of checkpoints/best; -1: it is not there.
  int64_t labeled_step(const RunFiles& files) const;
  UntilLoss until_loss(const RunFiles& files, int64_t tokens_per_step) const;
  double loss_of(Engine& engine, size_t source);

  int64_t kept_step_ = -1;  // the lowest loss may have been in a step without a checkpoint
  double kept_loss_ = std::numeric_limits<double>::infinity();
  double seconds_ = 0;
};

}  // namespace crest
