#include "backend/cpu/simd/few_rows.h"

#include "backend/cpu/simd/gelu.h"

namespace crest::cpu::CREST_ISA {
namespace {

constexpr int64_t chunk = 64;    // outputs finished together
constexpr int64_t ahead = 2048;  // bytes: how far before its use a line of w is asked for
constexpr int streams = 4;       // rows of w read side by side

// x w for one row of each. Rows of w follow each other in memory, so all of w is one stream: the
// fastest way for one row of x and weights below 4 bytes (docs/results/cpu/cores.md). The hardware
// prefetches only within a page. Several sums hide the latency of additions.
template <class T>
CREST_INLINE float dot(const float* x, const T* w, int64_t k) {
  constexpr int sums = sizeof(T) == 1 ? 4 : 2;
  constexpr int64_t line = 64 / sizeof(T), step = line > sums * lanes ? line : sums * lanes;
  Vf acc[sums] = {};
  int64_t i = 0;
  for (; i + step <= k; i += step) {
#pragma GCC unroll 4
    for (int64_t p = 0; p < step; p += line) __builtin_prefetch((const char*)(w + i + p) + ahead);
#pragma GCC unroll 8
    for (int64_t p = i; p < i + step; p += sums * lanes)
#pragma GCC unroll 4
      for (int s = 0; s < sums; ++s) acc[s] += load(w + p + s * lanes) * load(x + p + s * lanes);
  }
  for_vectors(k - i, [&](int64_t at, int64_t n) { acc[0] += load_some(w + i + at, n) * load_some(x + i + at, n); });
  if constexpr (sums == 4) acc[0] += acc[2], acc[1] += acc[3];
  return sum(acc[0] + acc[1]);
}

// to[r * chunk + j] = x[r] w[j] for `streams` rows of w: a vector of x serves all of them.
template <int rows, class T>
CREST_INLINE void dots(float* to, const float* x, const T* w, int64_t k) {
  Vf acc[streams][rows] = {};
  for_vectors(k, [&](int64_t i, int64_t n) {
    Vf xv[rows];
#pragma GCC unroll 4
    for (int r = 0; r < rows; ++r) xv[r] = load_some(x + r * k + i, n);
#pragma GCC unroll 4
    for (int j = 0; j < streams; ++j) {
      __builtin_prefetch(w + (streams + j) * k + i);
      Vf wv = load_some(w + j * k + i, n);
#pragma GCC unroll 4
      for (int r = 0; r < rows; ++r) acc[j][r] += wv * xv[r];
    }
  });
  for (int j = 0; j < streams; ++j)
    for (int r = 0; r < rows; ++r) to[r * chunk + j] = sum(acc[j][r]);
}

template <class T>
CREST_INLINE void group(float* to, const float* x, const T* w, int64_t k, int64_t rows) {
  if (rows >= 4) return dots<4>(to, x, w, k);
  if (rows == 3) return dots<3>(to, x, w, k);
  if (rows == 2) return dots<2>(to, x, w, k);
  dots<1>(to, x, w, k);
}

template <class T>
CREST_INLINE void add_bias(float* v, const T* bias, int64_t n) {
  for_vectors(n, [&](int64_t i, int64_t m) { store_some(v + i, load(v + i) + load_some(bias + i, m), m); });
}

void finish(const FewRowsArgs& a, float* v, int64_t r, int64_t j, int64_t n) {
  if (a.scale)
    for_vectors(n, [&](int64_t i, int64_t m) { store_some(v + i, load(v + i) * load_some(a.scale + j + i, m), m); });
  if (a.bias) {
    const void* bias = row_of(a.bias, a.bias_dtype, j);
    if (a.bias_dtype == DType::f32)
      add_bias(v, (const float*)bias, n);
    else if (a.bias_dtype == DType::bf16)
      add_bias(v, (const bfloat16*)bias, n);
    else
      add_bias(v, (const float16*)bias, n);
  }
  if (a.h) from_floats(row_of(a.h, a.dtype, r * a.n + j), a.dtype, n, v);
  if (a.gelu) for_vectors(n, [&](int64_t i, int64_t m) { store_some(v + i, gelu_of(load(v + i)), m); });
  from_floats(row_of(a.y, a.dtype, r * a.n + j), a.dtype, n, v);
}

template <class T>
void run(const FewRowsArgs& a, int64_t begin, int64_t end) {
  constexpr int64_t most = 4;  // rows of x at a time; the rows of w are in the first cache for the next ones
  for (int64_t j0 = begin; j0 < end; j0 += chunk) {
    int64_t n = end - j0 < chunk ? end - j0 : chunk;
    for (int64_t r0 = 0; r0 < a.rows; r0 += most) {
      alignas(64) float v[most * chunk] = {};
      int64_t rows = a.rows - r0 < most ? a.rows - r0 : most;
      const T* w = (const T*)a.w + j0 * a.k;
      const float* x = a.x + r0 * a.k;
      int64_t j = 0;
      if (rows > 1 || sizeof(T) == sizeof(float))
        for (; j + streams <= n; j += streams) group(v + j, x, w + j * a.k, a.k, rows);
      for (; j < n; ++j)
        for (int64_t r = 0; r < rows; ++r) v[r * chunk + j] = dot(x + r * a.k, w + j * a.k, a.k);
      for (int64_t r = 0; r < rows; ++r) finish(a, v + r * chunk, r0 + r, j0, n);
    }
  }
}

void outputs(const FewRowsArgs& a, int64_t begin, int64_t end) {
  if (a.w_dtype == DType::i8)
    run<int8_t>(a, begin, end);
  else if (a.w_dtype == DType::f32)
    run<float>(a, begin, end);
  else if (a.w_dtype == DType::bf16)
    run<bfloat16>(a, begin, end);
  else
    run<float16>(a, begin, end);
}

}  // namespace

const FewRowsFunctions few_rows_functions = {outputs};

}  // namespace crest::cpu::CREST_ISA
