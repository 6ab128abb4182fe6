#include "backend/cpu/simd/amx.h"

#include "backend/cpu/simd/amx_tiles.h"
#include "backend/cpu/simd/epilogue.h"

namespace crest::cpu::CREST_ISA {
namespace {

CREST_INLINE int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

typedef uint32_t V16 __attribute__((vector_size(64)));
typedef uint32_t V16Memory __attribute__((vector_size(64), aligned(2), may_alias));
typedef uint16_t H32 __attribute__((vector_size(64)));

// 32 elements, zeros behind the first n. Vectors go by reference: how narrower machines pass them has changed
// (GCC 4.6).
CREST_INLINE void load_row(V16& x, const uint16_t* p, int64_t n) {
  uint16_t t[32] = {};
  if (n < 32) {
    for (int64_t i = 0; i < n; ++i) t[i] = p[i];
    p = t;
  }
  x = *(const V16Memory*)p;
}

// x[i][j] = x[j][i], 16 x 16 words.
CREST_INLINE void transpose(V16* x) {
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

// Words of the terms (even, odd) of 32 rows or columns.
CREST_INLINE void pair_up(const V16& even, const V16& odd, V16& low, V16& high) {
  H32 e = (H32)even, o = (H32)odd;
  low = (V16)__builtin_shufflevector(e, o, 0, 32, 1, 33, 2, 34, 3, 35, 4, 36, 5, 37, 6, 38, 7, 39, 8, 40, 9, 41, 10, 42,
                                     11, 43, 12, 44, 13, 45, 14, 46, 15, 47);
  high = (V16)__builtin_shufflevector(e, o, 16, 48, 17, 49, 18, 50, 19, 51, 20, 52, 21, 53, 22, 54, 23, 55, 24, 56, 25,
                                      57, 26, 58, 27, 59, 28, 60, 29, 61, 30, 62, 31, 63);
}

// Row i of a tile: 16 pairs of terms of row or column i of `from`.
CREST_INLINE void load_crosswise(V16* x, const uint16_t* from, int64_t ld, int64_t count, int64_t depth) {
  for (int i = 0; i < 16; ++i) load_row(x[i], from + i * ld, i < count ? depth : 0);
}

// Row p of two tiles: pair p of terms of 16 rows or columns each.
CREST_INLINE void load_along(V16* low, V16* high, const uint16_t* from, int64_t ld, int64_t count, int64_t depth) {
  for (int p = 0; p < 16; ++p) {
    V16 even, odd;
    load_row(even, from + 2 * p * ld, 2 * p < depth ? count : 0);
    load_row(odd, from + (2 * p + 1) * ld, 2 * p + 1 < depth ? count : 0);
    pair_up(even, odd, low[p], high[p]);
  }
}

CREST_INLINE void store_tile(uint16_t* to, const V16* x) {
  for (int i = 0; i < 16; ++i) *(V16Memory*)(to + 32 * i) = x[i];
}

// Pairs of terms of a tile of rows lie side by side, those of a tile of columns below each other.
template <bool rows>
void pack(uint16_t* to, const uint16_t* from, int64_t ld, bool crosswise, int64_t count, int64_t depth) {
  int64_t steps = (depth + 31) / 32;
  for (int64_t s = 0; s < count; s += 32)
    for (int64_t k = 0; k < steps; ++k, to += 2 * tile_elements) {
      V16 x[2][16];
      int64_t n = count - s, d = depth - 32 * k;
      if (crosswise)
        for (int t = 0; t < 2; ++t) load_crosswise(x[t], from + (s + 16 * t) * ld + 32 * k, ld, n - 16 * t, d);
      else
        load_along(x[0], x[1], from + 32 * k * ld + s, ld, n, d);
      for (int t = 0; t < 2; ++t) {
        if (crosswise != rows) transpose(x[t]);
        store_tile(to + t * tile_elements, x[t]);
      }
    }
}

#if defined(__x86_64__)
struct alignas(64) TileConfig {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
void configure() {
  static const TileConfig config;
  asm volatile("ldtilecfg %0" ::"m"(config) : "memory");
}
void release() { asm volatile("tilerelease" ::: "memory"); }
#else
void configure() {}
void release() {}
#endif

template <class T>
void finish(const TileOutput& out, const float* sums, int64_t i, int64_t j, int64_t m, int64_t n) {
  for (int64_t r = 0; r < least(32, m - i); ++r) {
    const float* row = sums + r / 16 * 512 + r % 16 * 16;
    finish_row<T>(out, row, i + r, j, least(16, n - j));
    if (n - j > 16) finish_row<T>(out, row + 256, i + r, j + 16, least(16, n - j - 16));
  }
}

void block(int64_t m, int64_t n, int64_t steps, const uint16_t* a, int64_t a_stride, const uint16_t* b,
           int64_t b_stride, float* sums, bool clear, const TileOutput* out, bool emulated) {
  for (int64_t i = 0; i < m; i += 32, a += a_stride) {
    const uint16_t* bj = b;
    for (int64_t j = 0; j < n; j += 32, bj += b_stride, sums += 1024) {
      multiply(steps, a, bj, {sums, 256, 512, 16}, clear, emulated);
      if (!out) continue;
      out->type == DType::f32 ? finish<float>(*out, sums, i, j, m, n) : finish<bfloat16>(*out, sums, i, j, m, n);
    }
  }
}

}  // namespace

const AmxFunctions amx_functions = {pack<true>, pack<false>, block, configure, release};

}  // namespace crest::cpu::CREST_ISA
