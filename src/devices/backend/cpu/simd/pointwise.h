#pragma once
#include "backend/cpu/simd/pick.h"
#include "core/dtype.h"
#include "ops/pointwise_ops.h"

namespace crest::cpu {

// One instruction of a body over n floats in the first-level cache: out[i] = f(a[i], b[i], value).
// out may be a or b.
using PointwiseStep = void (*)(float* out, const float* a, const float* b, int64_t n, float value);

struct PointwiseFunctions {
#define CREST_POINTWISE_STEP(op, inputs, outputs) PointwiseStep op;
  CREST_POINTWISE_OPS(CREST_POINTWISE_STEP)
#undef CREST_POINTWISE_STEP
  // Conversions between floats and storage of dtype f32, bf16 or f16 (a copy for f32).
  void (*load)(float* to, const void* from, DType from_dtype, int64_t n);
  void (*store)(void* to, DType to_dtype, const float* from, int64_t n);
  // sums[(first + i) % columns] += x[i].
  void (*column_sums)(float* sums, const float* x, int64_t first, int64_t n, int64_t columns);
};
CREST_SIMD_TABLE(PointwiseFunctions, pointwise_functions)

}  // namespace crest::cpu
