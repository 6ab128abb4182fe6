#pragma once
#include "backend/cpu/simd/pick.h"
#include "core/dtype.h"

namespace crest::cpu {

// Rows begin .. end-1 of [rows, cols], the values times `scale`; causal: columns above the row's
// number modulo cols are not read and give 0.
struct SoftmaxRows {
  int64_t cols, begin, end;
  float scale;
  bool causal;
};

// Rows begin .. end-1 of [batch, heads, size, size]: -inf in columns above the row's number, left
// of its document (positions[batch, size] may be null) and of its window (0: none).
struct MaskRows {
  int64_t size, begin, end, heads, window;
  const int32_t* positions;
};

struct SoftmaxFunctions {
  // y = softmax of the rows of scale x; -inf gives 0, a row of -inf gives zeros. y may be x.
  // Scratch holds cols floats.
  void (*forward)(const void* x, void* y, DType, const SoftmaxRows&, float* scratch);
  // dx = scale y (dy - sum(dy y)); dx may be dy.
  void (*backward)(const void* dy, const void* y, void* dx, DType, const SoftmaxRows&);
  // Rows of [batch, heads, size, size]. y may be x.
  void (*causal_mask)(const void* x, void* y, DType, const MaskRows&);
};
CREST_SIMD_TABLE(SoftmaxFunctions, softmax_functions)

}  // namespace crest::cpu
