// The inner parts of the packed matrix product (gemm_packed.h):
// panels of both operands as floats in the order of the
// register tile, and the tile with the end of its results.
#pragma once
#include "backend/cpu/simd/pick.h"
#include "core/dtype.h"

namespace crest::cpu {

// The place of a block of the product. All pointers are to the block's first element; `sum` has
// rows ld_sum elements apart, the others ldc.
struct TileOutput {
  float* sum = nullptr;  // partial sums of earlier and for later parts of the reduction (may be c itself)
  int64_t ld_sum = 0;
  bool first = true, last = true;  // part of the reduction: first ignores sum, last writes c
  void* c = nullptr;
  DType type = DType::f32;
  int64_t ldc = 0;
  const void* add = nullptr;    // summand of the product, laid out as c (may be c itself); null: nothing
  const float* bias = nullptr;  // of the block's columns
  bool gelu = false;            // c = gelu(product), tanh form
  void* h = nullptr;            // gelu: the product itself, as c; null: not wanted
};

struct GemmFunctions {
  int64_t rows, columns;  // of the register tile
  // Slivers of `width` rows or columns: to[sliver][p][i], zeros behind the last of `count`.
  // `crosswise`: element (i, p) lies at from[i * ld + p], else at from[p * ld + i].
  void (*pack)(float* to, int64_t width, const void* from, DType type, int64_t ld, bool crosswise, int64_t count,
               int64_t depth);
  // m x n results of packed slivers of both operands, depth terms each.
  void (*block)(int64_t m, int64_t n, int64_t depth, const float* a, const float* b, const TileOutput& out);
};
CREST_SIMD_TABLE(GemmFunctions, gemm_functions)

}  // namespace crest::cpu
