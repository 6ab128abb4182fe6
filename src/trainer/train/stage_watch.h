// Measures the stages of a pipeline during training.
#pragma once
#include <cstdint>
#include <optional>

#include "train/pipeline_times.h"

namespace crest {

// Takes the times of a few early steps. The first ones are slower. Without stages, of none.
class StageWatch {
 public:
  StageWatch(const Recipe& recipe, int64_t start_step);
  // Whether Engine::queue_step should time this step.
  bool times(int64_t step) const;
  // All ranks call it, with no step queued. Empty: no stages, or the run ended too early.
  std::optional<PipelineTimes> measure(Engine& engine, int64_t steps_done, const RankGroup* group) const;

 private:
  static constexpr int64_t skipped_steps = 3, timed_steps = 3;
  bool stages_;
  int64_t first_;
};

}  // namespace crest
