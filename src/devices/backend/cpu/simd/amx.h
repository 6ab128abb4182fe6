// The inner parts of the product on AMX's matrix units (gemm_amx.h). Operands are packed into
// slivers of 32 rows or columns: a step of the reduction is two tiles of 1 KiB, one after the
// other, as TDPBF16PS takes them (Intel's instruction set reference): 16 rows of 32 terms of a; 16
// pairs of terms of 16 columns of b.
#pragma once
#include "backend/cpu/simd/gemm.h"

namespace crest::cpu {

constexpr int64_t amx_width = 32;  // rows and columns of a sliver, terms of a step

struct AmxFunctions {
  // to[sliver][step][2 tiles], zeros behind the last of `count` and of `depth`. `crosswise`: term p
  // of row or column i lies at from[i * ld + p], else at from[p * ld + i].
  void (*pack_rows)(uint16_t* to, const uint16_t* from, int64_t ld, bool crosswise, int64_t count, int64_t depth);
  void (*pack_columns)(uint16_t* to, const uint16_t* from, int64_t ld, bool crosswise, int64_t count, int64_t depth);
  // Adds `steps` steps of all slivers of m rows and n columns to sums[row sliver][column sliver][4
  // tiles], from zero if `clear`; slivers lie `a_stride` and `b_stride` elements apart. With `out`,
  // results go there while they are near. `emulated`: without the instructions, for tests.
  void (*block)(int64_t m, int64_t n, int64_t steps, const uint16_t* a, int64_t a_stride, const uint16_t* b,
                int64_t b_stride, float* sums, bool clear, const TileOutput* out, bool emulated);
  // Before and after the blocks of a thread.
  void (*configure)(), (*release)();
};
CREST_SIMD_TABLE(AmxFunctions, amx_functions)

}  // namespace crest::cpu
