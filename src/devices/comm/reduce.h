// Element-wise sums of host arrays, for collectives that reduce.
#pragma once
#include <cstdint>
#include <vector>

#include "core/dtype.h"

namespace crest {

// out[i] = parts[0][i] + parts[1][i] + ..., in this order. Every transport adds in rank order, so
// their results are bitwise identical. 16-bit floats are added in float, and the sum (mean: divided
// by the number of parts) is rounded once. out may be one of the parts. Floating dtypes.
void sum_in_order(void* out, const std::vector<const void*>& parts, DType dtype, int64_t n, bool mean);

}  // namespace crest
