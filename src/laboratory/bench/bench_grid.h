// Estimates how long a grid of crest bench takes, before and while it runs.
#pragma once
#include <vector>

#include "bench/bench_measure.h"

namespace crest {

// The options give the number of runs per measurement; the time of a run is its FLOPs over a rate.
class GridClock {
 public:
  explicit GridClock(const BenchOptions& options) : o_(options) {}
  // Upper bound in seconds for all tasks at a rate (FLOP/s).
  double estimate(const std::vector<BenchTask>& tasks, double flops_per_second) const;
  // Records a measurement: seconds per run (0: it did not fit), and in total.
  void measured(const BenchTask& task, double run_seconds, double wall_seconds);
  // Estimated seconds for tasks [from, end), from the measurements so far; negative: unknown.
  double left(const std::vector<BenchTask>& tasks, size_t from) const;

 private:
  double task_seconds(const BenchTask& task, double flops_per_second) const;
  double rate() const { return run_seconds_ > 0 ? flops_ / run_seconds_ : 0; }

  const BenchOptions& o_;
  double flops_ = 0, run_seconds_ = 0, wall_seconds_ = 0;
  std::vector<BenchTask> done_;
};

// Refuses a long grid with its estimated time, unless --yes was given.
void confirm(BenchMeasure& bench, const std::vector<BenchTask>& tasks);

}  // namespace crest
