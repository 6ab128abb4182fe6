// Two recipes, measured now: interleaved steps, and a profile of each.
#pragma once
#include <string>

#include "cli/bench_options.h"
#include "cli/new_record.h"

namespace crest {

struct CompareMeasureOptions {
  CellOptions base;  // what both sides start from
  RecordOptions store;
  std::string a, b;  // flags over it
  std::string phase = "step", rates;
  int samples = 0, warmup = 3;
  double max_seconds = 20;
  uint64_t seed = 1337;
};

struct MeasuredPair {
  RunRecord a, b;
  double noise_floor = 0;  // of A against A, in the same rounds
};

// Both are recorded, unless the store is off. A side that does not fit in memory has status out_of_memory.
MeasuredPair measure_pair(const CompareMeasureOptions& options);

}  // namespace crest
