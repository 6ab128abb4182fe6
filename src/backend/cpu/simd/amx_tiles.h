// One product of tiles: 32 x 32 sums in four tile registers, with the instructions or without them.
#pragma once
#include "backend/cpu/simd/vec.h"

namespace crest::cpu::CREST_ISA {

inline constexpr int64_t tile_elements = 16 * 32;  // bf16

// Where 2 x 2 tiles of sums lie: floats to the tile on the right, to the tile below, to the next row of a tile.
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
