#pragma once
#include "backend/cpu/simd/attention.h"

namespace crest::cpu {

struct DecodeFunctions {
  // Query t of head `head` against keys 0 .. visible-1, as dot products: for few queries, where
  // packing keys would cost more than it saves. Scratch holds `visible` + 256 floats. No dropout,
  // no lse.
  void (*query)(const AttentionArgs&, int64_t head, int64_t t, int64_t visible, float* scratch);
};
CREST_SIMD_TABLE(DecodeFunctions, decode_functions)

}  // namespace crest::cpu
