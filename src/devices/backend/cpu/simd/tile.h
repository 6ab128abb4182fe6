// Small matrix products on packed operands in the first two cache levels: the inner loops of
// attention.
#pragma once
#include "backend/cpu/simd/vec.h"

namespace crest::cpu::CREST_ISA {

// Register tile: tile_rows x up to tile_vectors vectors of accumulators. Of 32 registers 16 are
// used: a tile as wide as a head of 64 reads A once, and a step loads 8 values for 16
// multiplications (8 x 2: 10). 16 registers leave 12.
#if CREST_LANES == 16
inline constexpr int tile_rows = 4, tile_vectors = 4;
#elif CREST_LANES == 8
inline constexpr int tile_rows = 4, tile_vectors = 3;
#else
inline constexpr int tile_rows = 4, tile_vectors = 2;
#endif

// C before the product is added: nothing, C, or C with row i multiplied by factor[i].
enum class Start { zero, add, scaled };

// Stops the compiler from folding a broadcast into each of N multiplications, which would load it N
// times.
CREST_INLINE void keep_in_register([[maybe_unused]] Vf& x) {
#if CREST_LANES >= 8
  asm("" : "+v"(x));
#endif
}

// C[i][0 .. N vectors) of tile_rows rows. transposed: A is stored [k][i].
template <int N, bool transposed, Start start>
CREST_INLINE void tile(int64_t k, const float* a, int64_t lda, const float* b, int64_t ldb, float* c, int64_t ldc,
                       const float* factor) {
  Vf acc[tile_rows][N];
#pragma GCC unroll 16
  for (int i = 0; i < tile_rows; ++i)
#pragma GCC unroll 4
    for (int j = 0; j < N; ++j) {
      if (start == Start::zero)
        acc[i][j] = Vf{};
      else
        acc[i][j] = load(c + i * ldc + j * lanes);
      if (start == Start::scaled) acc[i][j] *= factor[i];
    }
  for (int64_t p = 0; p < k; ++p) {
    Vf bv[N];
#pragma GCC unroll 4
    for (int j = 0; j < N; ++j) bv[j] = load(b + p * ldb + j * lanes);
#pragma GCC unroll 16
    for (int i = 0; i < tile_rows; ++i) {
      Vf av = splat(transposed ? a[p * lda + i] : a[i * lda + p]);
      keep_in_register(av);
#pragma GCC unroll 4
      for (int j = 0; j < N; ++j) acc[i][j] += av * bv[j];
    }
  }
#pragma GCC unroll 16
  for (int i = 0; i < tile_rows; ++i)
#pragma GCC unroll 4
    for (int j = 0; j < N; ++j) store(c + i * ldc + j * lanes, acc[i][j]);
}

// The part of a product needed by a causal block: query q sees key r when r <= q + delta. Indices
// are within the block; with a large delta everything is visible.
struct Band {
  enum Kind { full, keys_by_queries, queries_by_keys, sum_over_keys, sum_over_queries } kind = full;
  int64_t delta = 0;
};

// C[m][n] (+)= A[m][k] B[k][n]; m a multiple of tile_rows, n of lanes: callers pad. transposed: A
// is stored [k][m]. Tiles outside the band are not computed (C stays), and sums run over visible
// terms only.
template <bool transposed, Start start>
void product(int64_t m, int64_t n, int64_t k, const float* a, int64_t lda, const float* b, int64_t ldb, float* c,
             int64_t ldc, Band band = {}, const float* factor = nullptr) {
  int64_t vectors = n / lanes, j = 0;
  while (j < vectors) {
    int64_t left = vectors - j, width = left >= tile_vectors ? tile_vectors : left;
    if (left == tile_vectors + 1) width = tile_vectors - 1;  // 2 + 2 is faster than 3 + 1
    for (int64_t i = 0; i < m; i += tile_rows) {
      int64_t begin = 0, end = k;
      if (band.kind == Band::keys_by_queries && (j + width) * lanes - 1 + band.delta < i) continue;
      if (band.kind == Band::queries_by_keys && j * lanes > i + tile_rows - 1 + band.delta) continue;
      if (band.kind == Band::sum_over_keys && i + tile_rows + band.delta < k) end = i + tile_rows + band.delta;
      if (band.kind == Band::sum_over_queries && i > band.delta) begin = i - band.delta;
      if (begin >= end) continue;
      const float* ai = a + (transposed ? i + begin * lda : i * lda + begin);
      const float* bj = b + begin * ldb + j * lanes;
      float* cj = c + i * ldc + j * lanes;
      const float* fi = factor ? factor + i : nullptr;
      int64_t length = end - begin;
      if (width == tile_vectors)
        tile<tile_vectors, transposed, start>(length, ai, lda, bj, ldb, cj, ldc, fi);
      else if (width == tile_vectors - 1)
        tile<tile_vectors - 1, transposed, start>(length, ai, lda, bj, ldb, cj, ldc, fi);
      else if (width == 2)
        tile<2, transposed, start>(length, ai, lda, bj, ldb, cj, ldc, fi);
      else
        tile<1, transposed, start>(length, ai, lda, bj, ldb, cj, ldc, fi);
    }
    j += width;
  }
}

// Prefetches the lines of a row needed soon: rows of a head lie pages apart, beyond hardware
// prefetchers.
template <class T>
CREST_INLINE void prefetch_row(const T* from, int64_t n) {
  for (int64_t i = 0; i < n; i += 64 / int64_t(sizeof(T))) __builtin_prefetch(from + i);
}
inline constexpr int64_t rows_ahead = 8;

// to[i][0 .. padded) = from[i][0 .. n) factor as floats, zeros behind; rows count .. padded_rows-1
// are zero.
template <class T>
void pack_rows(float* to, int64_t padded, const T* from, int64_t stride, int64_t n, int64_t count, int64_t padded_rows,
               float factor) {
  for (int64_t r = 0; r < count; ++r) {
    const T* f = from + r * stride;
    float* t = to + r * padded;
    if (r + rows_ahead < count) prefetch_row(f + rows_ahead * stride, n);
    int64_t i = 0;
    for (; i + lanes <= n; i += lanes) store(t + i, load(f + i) * factor);
    if (i < n) store(t + i, load_n(f + i, n - i) * factor), i += lanes;
    for (; i < padded; i += lanes) store(t + i, Vf{});
  }
  for (int64_t i = count * padded; i < padded_rows * padded; i += lanes) store(to + i, Vf{});
}

// to[d][0 .. ldt) = from[0 .. ldt)[d] for d < n (rounded up to 4); ldt and ldf are multiples of 4.
inline void transpose(float* to, int64_t ldt, const float* from, int64_t ldf, int64_t n) {
  typedef float V4Memory __attribute__((vector_size(16), aligned(4), may_alias));
  for (int64_t d = 0; d < n; d += 4)
    for (int64_t r = 0; r < ldt; r += 4) {
      const float* f = from + r * ldf + d;
      float* t = to + d * ldt + r;
      V4 a = *(const V4Memory*)f, b = *(const V4Memory*)(f + ldf);
      V4 c = *(const V4Memory*)(f + 2 * ldf), e = *(const V4Memory*)(f + 3 * ldf);
      V4 ab = __builtin_shufflevector(a, b, 0, 4, 1, 5), ab2 = __builtin_shufflevector(a, b, 2, 6, 3, 7);
      V4 ce = __builtin_shufflevector(c, e, 0, 4, 1, 5), ce2 = __builtin_shufflevector(c, e, 2, 6, 3, 7);
      *(V4Memory*)t = __builtin_shufflevector(ab, ce, 0, 1, 4, 5);
      *(V4Memory*)(t + ldt) = __builtin_shufflevector(ab, ce, 2, 3, 6, 7);
      *(V4Memory*)(t + 2 * ldt) = __builtin_shufflevector(ab2, ce2, 0, 1, 4, 5);
      *(V4Memory*)(t + 3 * ldt) = __builtin_shufflevector(ab2, ce2, 2, 3, 6, 7);
    }
}

template <class T>
CREST_INLINE void store_row(T* to, const float* from, int64_t n, float factor) {
  for_vectors(n, [&](int64_t i, int64_t k) { store_some(to + i, load_some(from + i, k) * factor, k); });
}

}  // namespace crest::cpu::CREST_ISA
