// Measures two recipes: interleaved steps, and a profile of each.
#pragma once
#include <string>

#include "bench/bench_options.h"
#include "store/record_options.h"

namespace crest {

struct CompareMeasureOptions {
  MeasurementOptions a, b;
  RecordOptions store;
  std::string phase = "step", rates;
  int samples = 0, warmup = 3;
  double max_seconds = 20;
  uint64_t seed = 1337;
};

struct MeasuredPair {
  RunRecord a, b;
  double noise_floor = 0;  // A against itself, in the same rounds
};

// Records both sides, unless the store is off. A side too large for memory gets status
// out_of_memory.
MeasuredPair measure_pair(const CompareMeasureOptions& options);

// Whether the sides need separate processes.
bool need_processes(const MeasurementOptions& a, const MeasurementOptions& b);

// Each round runs A and B in turn, each in a new process (measure_processes.cpp). A sample is the
// median of a process. A side's profile is from the process nearest to its median.
MeasuredPair measure_in_processes(const CompareMeasureOptions& options);

}  // namespace crest
