// How long a grid of crest bench takes: before it starts, and while it runs.
#pragma once
#include <vector>

#include "bench/bench_measure.h"

namespace crest {

// Runs of one cell are counted from the options; the time of a run is its FLOPs over a rate.
class GridClock {
 public:
  explicit GridClock(const BenchOptions& options) : o_(options) {}
  // Seconds of all tasks at a rate (FLOP/s), at most.
  double estimate(const std::vector<BenchTask>& tasks, double flops_per_second) const;
  // A cell that was measured: seconds of a run (0: it did not fit), and of everything.
  void measured(const BenchTask& task, double run_seconds, double wall_seconds);
  // Seconds that tasks [from, end) will take, by the rate and the accuracy of the estimate so far; negative: unknown.
  double left(const std::vector<BenchTask>& tasks, size_t from) const;

 private:
  double cell_seconds(const BenchTask& task, double flops_per_second) const;
  double rate() const { return run_seconds_ > 0 ? flops_ / run_seconds_ : 0; }

  const BenchOptions& o_;
  double flops_ = 0, run_seconds_ = 0, wall_seconds_ = 0;
  std::vector<BenchTask> done_;
};

// A grid that takes long is refused with its estimated time, unless --yes was given.
void confirm(BenchMeasure& bench, const std::vector<BenchTask>& tasks);

}  // namespace crest
