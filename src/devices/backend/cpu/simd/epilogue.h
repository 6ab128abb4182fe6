// The end of a matrix product, in registers
// (TileOutput): earlier sums, bias, GELU, their type.
#pragma once
#include "backend/cpu/simd/gelu.h"
#include "backend/cpu/simd/gemm.h"

namespace crest::cpu::CREST_ISA {

// n results of row r from column j on.
template <class T>
CREST_INLINE void finish_row(const TileOutput& out, const float* x, int64_t r, int64_t j, int64_t n) {
  int64_t at = r * out.ldc + j, sum_at = r * out.ld_sum + j;
  for_vectors(n, [&](int64_t i, int64_t k) {
    Vf v = load(x + i);
    if (!out.first) v += load_some(out.sum + sum_at + i, k);
    if (out.first && out.add) v += load_some((const T*)out.add + at + i, k);
    if (!out.last) return store_some(out.sum + sum_at + i, v, k);
    if (out.bias) v += load_some(out.bias + j + i, k);
    if (out.h) store_some((T*)out.h + at + i, v, k);
    store_some((T*)out.c + at + i, out.gelu ? gelu_of(v) : v, k);
  });
}

}  // namespace crest::cpu::CREST_ISA
