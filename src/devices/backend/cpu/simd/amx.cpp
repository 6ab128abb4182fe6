#include "backend/cpu/simd/amx.h"

#include "backend/cpu/simd/amx_tiles.h"
#include "backend/cpu/simd/epilogue.h"

namespace crest::cpu::CREST_ISA {
namespace {

CREST_INLINE int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

// 32 elements, zeros behind the first n. Vectors go by reference: how narrower machines pass them
// has changed (GCC 4.6).
CREST_INLINE void load_row(V16& x, const uint16_t* p, int64_t n) {
  if (n >= 32) {
    x = *(const V16Memory*)p;
    return;
  }
  uint16_t t[32] = {};
  for (int64_t i = 0; i < n; ++i) t[i] = p[i];
  x = *(const V16Memory*)t;
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

// Tiles of rows have pairs of terms side by side, tiles of columns below each other.
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
        if (crosswise != rows) transpose_words(x[t]);
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
