// The lowest validation loss of a run, and how long ago the loss improved.
#pragma once
#include <cstdint>

namespace crest {

struct BestLoss {
  int64_t step = -1;       // of the last validation; -1: none yet
  int64_t best_step = -1;  // of the lowest loss; -1: no finite one yet
  double best = 0;         // the lowest loss
  double reference = 0;    // the loss at the last improvement
  int64_t waited = 0;      // validations after that improvement

  // An improvement is at least min_delta below `reference`, and lower than it. A loss of NaN or
  // infinity is none.
  void add(int64_t at, double loss, double min_delta);
};

}  // namespace crest
