// What one of several ranks has of a tensor.
#pragma once
#include <vector>

#include "core/shape.h"

namespace crest::test {

// Part r of `ranks` equal parts of dimension `dim`, of row-major values.
inline std::vector<double> part_of(const std::vector<double>& x, const Shape& shape, int dim, int r, int ranks) {
  int64_t outer = 1, inner = 1, n = shape[dim] / ranks;
  for (int d = 0; d < dim; ++d) outer *= shape[d];
  for (int d = dim + 1; d < shape.rank(); ++d) inner *= shape[d];
  std::vector<double> part;
  for (int64_t o = 0; o < outer; ++o) {
    auto from = x.begin() + (o * shape[dim] + r * n) * inner;
    part.insert(part.end(), from, from + n * inner);
  }
  return part;
}

}  // namespace crest::test
