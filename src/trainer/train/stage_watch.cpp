#include "train/stage_watch.h"

#include "train/engine.h"

namespace crest {

StageWatch::StageWatch(const Recipe& recipe, int64_t start_step)
    : stages_(recipe.layout().size(Axis::pipeline) > 1), first_(start_step + skipped_steps) {}

bool StageWatch::times(int64_t step) const { return stages_ && step >= first_ && step < first_ + timed_steps; }

std::optional<PipelineTimes> StageWatch::measure(Engine& engine, int64_t steps_done, const RankGroup* group) const {
  if (!stages_ || steps_done < first_ + timed_steps) return {};
  std::vector<std::vector<RankCalls>> own;
  for (const std::vector<double>& stamps : engine.take_call_times()) {
    auto& runs = own.emplace_back();
    const auto size = std::ptrdiff_t(stamps.size()) / timed_steps;
    for (auto at = stamps.begin(); at != stamps.end(); at += size)
      runs.push_back({at[size - 1] - at[0], {at, at + size}});
  }
  return measured_pipeline(engine, own, group);
}

}  // namespace crest
