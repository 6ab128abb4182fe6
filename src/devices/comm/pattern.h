// Test data for collectives: small integers by rank and position. Every sum is exact in every
// dtype, and a result with a wrong rank or position is detected.
#pragma once
#include <cstdint>
#include <vector>

#include "comm/collective.h"

namespace crest {

// Element `place` of rank `rank`: -2, .., 2.
double pattern_value(int rank, int64_t place);

// Fills `count` elements at `data` (host) with rank `rank`'s, starting at `first`.
void fill_pattern(void* data, DType dtype, int64_t count, int rank, int64_t first);

// The expected data of rank `rank` of `ranks` after the collective on `elements` (the whole
// buffer), root 0.
class ExpectedResult {
 public:
  ExpectedResult(Collective c, int rank, int ranks, int64_t elements);
  int64_t count() const { return count_; }
  double at(int64_t place) const;

 private:
  Collective collective_;
  int previous_;   // the rank before this one, in a ring
  int64_t part_;   // elements of a rank's part
  int64_t first_;  // place of this rank's part in the whole
  int64_t count_;
  std::vector<double> sums_;  // over the ranks, of one period of places
};

}  // namespace crest
