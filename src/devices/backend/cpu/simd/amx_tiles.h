// One product of tiles: 32 x 32 sums in four tile registers, with the instructions or without them;
// transposes.
#pragma once
#include "backend/cpu/simd/vec.h"

namespace crest::cpu::CREST_ISA {

inline constexpr int64_t tile_elements = 16 * 32;  // bf16

typedef uint32_t V16 __attribute__((vector_size(64)));
typedef uint32_t V16Memory __attribute__((vector_size(64), aligned(2), may_alias));
typedef uint16_t H32 __attribute__((vector_size(64)));

// x[i][j] = x[j][i], 16 x 16 words.
CREST_INLINE void transpose_words(V16* x) {
  V16 y[16];
  for (int i = 0; i < 16; i += 2) {
    y[i] = __builtin_shufflevector(x[i], x[i + 1], 0, 16, 1, 17, 4, 20, 5, 21, 8, 24, 9, 25, 12, 28, 13, 29);
    y[i + 1] = __builtin_shufflevector(x[i], x[i + 1], 2, 18, 3, 19, 6, 22, 7, 23, 10, 26, 11, 27, 14, 30, 15, 31);
  }
  // Four words of a column each: x[i + c] holds columns c, c + 4, c + 8, c + 12 of rows i .. i + 3.
  for (int i = 0; i < 16; i += 4)
    for (int c = 0; c < 2; ++c) {
      V16 a = y[i + c], b = y[i + 2 + c];
      x[i + 2 * c] = __builtin_shufflevector(a, b, 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29);
      x[i + 2 * c + 1] = __builtin_shufflevector(a, b, 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31);
    }
  for (int c = 0; c < 4; ++c) {
    V16 a = x[c], b = x[c + 4], d = x[c + 8], e = x[c + 12];
    V16 ab = __builtin_shufflevector(a, b, 0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7, 20, 21, 22, 23);
    V16 ab2 = __builtin_shufflevector(a, b, 8, 9, 10, 11, 24, 25, 26, 27, 12, 13, 14, 15, 28, 29, 30, 31);
    V16 de = __builtin_shufflevector(d, e, 0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7, 20, 21, 22, 23);
    V16 de2 = __builtin_shufflevector(d, e, 8, 9, 10, 11, 24, 25, 26, 27, 12, 13, 14, 15, 28, 29, 30, 31);
    y[c] = __builtin_shufflevector(ab, de, 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23);
    y[c + 4] = __builtin_shufflevector(ab, de, 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31);
    y[c + 8] = __builtin_shufflevector(ab2, de2, 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23);
    y[c + 12] = __builtin_shufflevector(ab2, de2, 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31);
  }
  for (int i = 0; i < 16; ++i) x[i] = y[i];
}

// Where 2 x 2 tiles of sums lie: floats to the tile on the right, to the tile below, to the next
// row of a tile.
struct TileSums {
  float* at;
  int64_t right, down, row;
};

#if defined(__x86_64__)
#define CREST_TILE_LOAD(t, p, bytes) asm volatile("tileloadd (%0,%1,1), %%tmm" #t ::"r"(p), "r"(bytes) : "memory")
#define CREST_TILE_STORE(t, p, bytes) asm volatile("tilestored %%tmm" #t ", (%0,%1,1)" ::"r"(p), "r"(bytes) : "memory")
#define CREST_TILE_ZERO(t) asm volatile("tilezero %%tmm" #t ::)
#define CREST_TILE_DOT(c, a, b) asm volatile("tdpbf16ps %%tmm" #b ", %%tmm" #a ", %%tmm" #c ::)

CREST_INLINE void multiply_tiles(int64_t steps, const uint16_t* a, const uint16_t* b, const TileSums& sums,
                                 bool clear) {
  constexpr int64_t row = 64;
  float *c = sums.at, *below = c + sums.down;
  int64_t sum_row = sums.row * 4;
  if (clear) {
    CREST_TILE_ZERO(0);
    CREST_TILE_ZERO(1);
    CREST_TILE_ZERO(2);
    CREST_TILE_ZERO(3);
  } else {
    CREST_TILE_LOAD(0, c, sum_row);
    CREST_TILE_LOAD(1, c + sums.right, sum_row);
    CREST_TILE_LOAD(2, below, sum_row);
    CREST_TILE_LOAD(3, below + sums.right, sum_row);
  }
  for (int64_t k = 0; k < steps; ++k, a += 2 * tile_elements, b += 2 * tile_elements) {
    CREST_TILE_LOAD(4, a, row);
    CREST_TILE_LOAD(6, b, row);
    CREST_TILE_DOT(0, 4, 6);
    CREST_TILE_LOAD(7, b + tile_elements, row);
    CREST_TILE_DOT(1, 4, 7);
    CREST_TILE_LOAD(5, a + tile_elements, row);
    CREST_TILE_DOT(2, 5, 6);
    CREST_TILE_DOT(3, 5, 7);
  }
  CREST_TILE_STORE(0, c, sum_row);
  CREST_TILE_STORE(1, c + sums.right, sum_row);
  CREST_TILE_STORE(2, below, sum_row);
  CREST_TILE_STORE(3, below + sums.right, sum_row);
}
#else
inline void multiply_tiles(int64_t, const uint16_t*, const uint16_t*, const TileSums&, bool) {}
#endif

inline void multiply_emulated(int64_t steps, const uint16_t* a, const uint16_t* b, const TileSums& sums, bool clear) {
  auto value = [](uint16_t bits) {
    uint32_t u = uint32_t(bits) << 16;
    float f;
    __builtin_memcpy(&f, &u, 4);
    return f;
  };
  for (int i = 0; i < 32; ++i)
    for (int j = 0; j < 32; ++j) {
      float* c = sums.at + i / 16 * sums.down + j / 16 * sums.right + i % 16 * sums.row + j % 16;
      if (clear) *c = 0;
      for (int64_t k = 0; k < steps; ++k) {
        const uint16_t *ai = a + k * 2 * tile_elements + i * 32,
                       *bj = b + k * 2 * tile_elements + j / 16 * tile_elements + j % 16 * 2;
        for (int p = 0; p < 32; ++p) *c += value(ai[p]) * value(bj[p / 2 * 32 + p % 2]);
      }
    }
}

// sums (+)= a b of slivers of 32 rows and 32 columns, two tiles of each operand a step.
CREST_INLINE void multiply(int64_t steps, const uint16_t* a, const uint16_t* b, const TileSums& sums, bool clear,
                           bool emulated) {
  emulated ? multiply_emulated(steps, a, b, sums, clear) : multiply_tiles(steps, a, b, sums, clear);
}

}  // namespace crest::cpu::CREST_ISA
