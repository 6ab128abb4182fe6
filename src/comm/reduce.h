// Element-wise sums of host arrays, for collectives that reduce.
#pragma once
#include <cstdint>

#include "core/dtype.h"

namespace crest {

// out[i] = a[i] + b[i]; 16-bit floats are added in float and rounded once. out may be a or b.
// Floating dtypes.
void add_elements(void* out, const void* a, const void* b, DType dtype, int64_t n);
// data[i] *= factor
void scale_elements(void* data, DType dtype, int64_t n, double factor);

}  // namespace crest
