#pragma once
#include "backend/cpu/simd/pick.h"
#include "core/dtype.h"

namespace crest::cpu {

struct SoftmaxFunctions {
  // y = softmax of rows begin .. end-1 of x[rows, cols]; -inf gives 0, a row of -inf gives zeros. y may be x.
  // Scratch holds cols floats.
  void (*forward)(const void* x, void* y, DType, int64_t cols, int64_t begin, int64_t end, float* scratch);
  // dx = y (dy - sum(dy y)); dx may be dy.
  void (*backward)(const void* dy, const void* y, void* dx, DType, int64_t cols, int64_t begin, int64_t end);
  // Rows of [.., size, size]: -inf in columns above the row's number. y may be x.
  void (*causal_mask)(const void* x, void* y, DType, int64_t size, int64_t begin, int64_t end);
};
CREST_SIMD_TABLE(SoftmaxFunctions, softmax_functions)

}  // namespace crest::cpu
