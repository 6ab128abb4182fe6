// Where the results of a part of a packed product go (gemm_packed.cpp, gemm_amx.cpp).
#pragma once
#include <type_traits>

#include "backend/cpu/gemm_packed.h"
#include "backend/cpu/simd/gemm.h"

namespace crest::cpu {

// Element (i, j) of rows of ld elements; null stays null.
template <class P>
P* element(P* p, DType t, int64_t i, int64_t ld, int64_t j) {
  using Byte = std::conditional_t<std::is_const_v<P>, const char, char>;
  return p ? static_cast<Byte*>(p) + (i * ld + j) * int64_t(size_of(t)) : nullptr;
}

// The output of the block with first result (row, column), for terms [begin, end) of the reduction.
// Sums of a part stay in an f32 result, overwritten by the last part, else in `sum` (of this block,
// rows ld_sum apart).
inline TileOutput output_of(const PackedShape& s, const PackedOperands& o, int64_t row, int64_t column, int64_t begin,
                            int64_t end, float* sum, int64_t ld_sum) {
  TileOutput out;
  out.first = begin == 0, out.last = end >= s.k;
  out.c = element(o.c, s.c, row, s.n, column);
  out.type = s.c, out.ldc = s.n;
  out.add = element(o.add, s.c, row, s.n, column);
  out.bias = o.bias ? o.bias + column : nullptr;
  out.gelu = o.gelu;
  out.h = element(o.h, s.c, row, s.n, column);
  bool in_place = s.c == DType::f32;
  out.sum = in_place ? static_cast<float*>(out.c) : sum;
  out.ld_sum = in_place ? s.n : ld_sum;
  return out;
}

}  // namespace crest::cpu
