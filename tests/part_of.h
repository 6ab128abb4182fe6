// The part of a tensor of one of several ranks.
#pragma once
#include <vector>

#include "core/shape.h"
#include "program/placement.h"

namespace crest::test {

// Part r of `ranks` of row-major values.
inline std::vector<double> part_of(const std::vector<double>& x, const Shape& shape, Placement shard, int r,
                                   int ranks) {
  int64_t outer = 1, inner = 1, n = shape[shard.dim];
  for (int d = 0; d < shard.dim; ++d) outer *= shape[d];
  for (int d = shard.dim + 1; d < shape.rank(); ++d) inner *= shape[d];
  std::vector<double> part;
  for (int64_t o = 0; o < outer; ++o)
    for (const DimRange& range : ranges_of(shard, n, r, ranks)) {
      auto from = x.begin() + (o * n + range.begin) * inner;
      part.insert(part.end(), from, from + (range.end - range.begin) * inner);
    }
  return part;
}

}  // namespace crest::test
