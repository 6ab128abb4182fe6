#pragma once
#include "backend/cpu/simd/pick.h"
#include "core/dtype.h"

namespace crest::cpu {

struct ReduceFunctions {
  // sums[c] = sum over the rows of x[rows, cols].
  void (*column_sums)(float* sums, const void* x, DType dtype, int64_t rows, int64_t cols);
  // to[i] (+)= sum over p of parts[p * stride + i] in order of p, for i < n; stored as `dtype`, one
  // rounding.
  void (*combine)(void* to, DType dtype, bool accumulate, const float* parts, int64_t count, int64_t stride, int64_t n);
  // Sum of the squares of n elements, in double.
  double (*squares)(const void* x, DType dtype, int64_t n);
};
CREST_SIMD_TABLE(ReduceFunctions, reduce_functions)

}  // namespace crest::cpu
