#include "backend/cpu/simd/gemm.h"

#include "backend/cpu/simd/epilogue.h"
#include "backend/cpu/simd/tile.h"

namespace crest::cpu::CREST_ISA {
namespace {

// Register tile of packed operands. Deeper than in attention: two vectors of B leave registers for
// 12 rows, so a sliver of B is narrow and a step of the reduction loads 14 values for 24
// multiplications.
#if CREST_LANES == 16
constexpr int rows = 12, vectors = 2;
#elif CREST_LANES == 8
constexpr int rows = 4, vectors = 3;
#else
constexpr int rows = 4, vectors = 2;
#endif
constexpr int columns = vectors * lanes;
constexpr int64_t ahead = 8;  // steps of the reduction to prefetch

CREST_INLINE int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

// Prefetched while a tile is multiplied: a share of the next sliver of B (`stride` bytes a step,
// into the second level), and the lines of the results (`width` bytes of `count` rows, `ld` bytes
// apart).
struct Ahead {
  const char* next;
  int64_t stride;
  const char* results;
  int64_t count, ld, width;
};

// to[i][0 .. columns) = sum over p of a[p][i] b[p][0 .. columns).
CREST_INLINE void multiply(int64_t depth, const float* a, const float* b, float* to, const Ahead& fetch) {
  Vf acc[rows][vectors] = {};
  const char* next = fetch.next;
  int64_t p = 0;
  for (int64_t r = 0; p < depth; ++r) {
    // All lines of the results at once would hold up the loads of the product.
    int64_t end = depth;
    if (r < fetch.count) {
      for (int64_t i = 0; i < fetch.width; i += 64) __builtin_prefetch(fetch.results + r * fetch.ld + i, 1);
      end = least(depth, p + 8);
    }
    for (; p < end; ++p) {
      __builtin_prefetch(next, 0, 2);
      next += fetch.stride;
      Vf bv[vectors];
#pragma GCC unroll 4
      for (int j = 0; j < vectors; ++j) {
        bv[j] = load(b + j * lanes);
        __builtin_prefetch(b + ahead * columns + j * lanes);
      }
#pragma GCC unroll 16
      for (int i = 0; i < rows; ++i) {
        Vf av = splat(a[i]);
        keep_in_register(av);
#pragma GCC unroll 4
        for (int j = 0; j < vectors; ++j) acc[i][j] += av * bv[j];
      }
      a += rows, b += columns;
    }
  }
#pragma GCC unroll 16
  for (int i = 0; i < rows; ++i)
#pragma GCC unroll 4
    for (int j = 0; j < vectors; ++j) store(to + i * columns + j * lanes, acc[i][j]);
}

template <class T>
void run_block(int64_t m, int64_t n, int64_t depth, const float* a, const float* b, const TileOutput& out) {
  alignas(64) float tile[rows * columns];
  int64_t tiles = (m + rows - 1) / rows;
  const char* results = out.last ? (const char*)out.c : (const char*)out.sum;
  int64_t size = out.last ? int64_t(sizeof(T)) : 4, ld = out.last ? out.ldc : out.ld_sum;
  for (int64_t j = 0; j < n; j += columns, b += depth * columns) {
    const float* ai = a;
    Ahead fetch{(const char*)(b + depth * columns), columns * 4 / tiles + 1, results + j * size, 0, ld * size,
                least(columns, n - j) * size};
    for (int64_t i = 0; i < m; i += rows, ai += depth * rows) {
      fetch.count = least(rows, m - i);
      multiply(depth, ai, b, tile, fetch);
      for (int64_t r = 0; r < fetch.count; ++r) finish_row<T>(out, tile + r * columns, i + r, j, least(columns, n - j));
      fetch.next += depth * fetch.stride;
      fetch.results += rows * fetch.ld;
    }
  }
}

void block(int64_t m, int64_t n, int64_t depth, const float* a, const float* b, const TileOutput& out) {
  if (out.type == DType::f32)
    run_block<float>(m, n, depth, a, b, out);
  else if (out.type == DType::bf16)
    run_block<bfloat16>(m, n, depth, a, b, out);
  else
    run_block<float16>(m, n, depth, a, b, out);
}

// Four rows of at most `most` floats at a time become columns of a sliver.
constexpr int64_t most = 256;

CREST_INLINE void put_crosswise(float* to, int64_t width, const float* const* from, int64_t n) {
  typedef float V4Memory __attribute__((vector_size(16), aligned(4), may_alias));
  int64_t p = 0;
  for (; p + 4 <= n; p += 4, to += 4 * width) {
    V4 a = *(const V4Memory*)(from[0] + p), b = *(const V4Memory*)(from[1] + p);
    V4 c = *(const V4Memory*)(from[2] + p), d = *(const V4Memory*)(from[3] + p);
    V4 ab = __builtin_shufflevector(a, b, 0, 4, 1, 5), ab2 = __builtin_shufflevector(a, b, 2, 6, 3, 7);
    V4 cd = __builtin_shufflevector(c, d, 0, 4, 1, 5), cd2 = __builtin_shufflevector(c, d, 2, 6, 3, 7);
    *(V4Memory*)to = __builtin_shufflevector(ab, cd, 0, 1, 4, 5);
    *(V4Memory*)(to + width) = __builtin_shufflevector(ab, cd, 2, 3, 6, 7);
    *(V4Memory*)(to + 2 * width) = __builtin_shufflevector(ab2, cd2, 0, 1, 4, 5);
    *(V4Memory*)(to + 3 * width) = __builtin_shufflevector(ab2, cd2, 2, 3, 6, 7);
  }
  for (; p < n; ++p, to += width)
    for (int i = 0; i < 4; ++i) to[i] = from[i][p];
}

template <class T>
void pack_crosswise(float* to, int64_t width, const T* from, int64_t ld, int64_t count, int64_t depth) {
  static const float zeros[most] = {};
  float wide[4][most];
  for (int64_t s = 0; s < count; s += width, to += width * depth)
    for (int64_t p = 0; p < depth; p += most) {
      int64_t n = least(most, depth - p);
      for (int64_t i = 0; i < width; i += 4) {
        const float* part[4];
        for (int r = 0; r < 4; ++r) {
          const T* f = from + (s + i + r) * ld + p;
          if (s + i + r >= count)
            part[r] = zeros;
          else if constexpr (sizeof(T) == 4)
            part[r] = f;
          else
            widen_row(wide[r], f, n), part[r] = wide[r];
        }
        put_crosswise(to + p * width + i, width, part, n);
      }
    }
}

template <class T>
void pack_along(float* to, int64_t width, const T* from, int64_t ld, int64_t count, int64_t depth) {
  // A few steps at a time through all slivers: a row of `from` is read once, and its lines stay
  // near.
  constexpr int64_t steps = 4;
  for (int64_t p = 0; p < depth; p += steps)
    for (int64_t s = 0; s < count; s += width)
      for (int64_t q = p; q < least(p + steps, depth); ++q) {
        int64_t n = least(width, count - s);
        float* t = to + s * depth + q * width;
        if (n < width) __builtin_memset(t, 0, size_t(width) * 4);
        widen_row(t, from + q * ld + s, n);
      }
}

template <class T>
void pack_as(float* to, int64_t width, const T* from, int64_t ld, bool crosswise, int64_t count, int64_t depth) {
  crosswise ? pack_crosswise(to, width, from, ld, count, depth) : pack_along(to, width, from, ld, count, depth);
}

void pack(float* to, int64_t width, const void* from, DType type, int64_t ld, bool crosswise, int64_t count,
          int64_t depth) {
  if (type == DType::f32)
    pack_as(to, width, (const float*)from, ld, crosswise, count, depth);
  else if (type == DType::bf16)
    pack_as(to, width, (const bfloat16*)from, ld, crosswise, count, depth);
  else
    pack_as(to, width, (const float16*)from, ld, crosswise, count, depth);
}

}  // namespace

const GemmFunctions gemm_functions = {rows, columns, pack, block};

}  // namespace crest::cpu::CREST_ISA
