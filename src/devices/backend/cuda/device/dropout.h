// Dropout in kernels with the values at hand. An element's coordinates decide whether it is kept
// (core/random.h); a Philox block decides about four elements.
#pragma once
#include "backend/cuda/device/dropout_rule.h"
#include "backend/cuda/device/numeric.h"
#include "core/random.h"

namespace crest::cuda {

// The elements of a sample from `first` on; false if nothing is dropped.
struct DropoutSpan {
  uint64_t seed = 0, stream = 0, first;
  uint32_t threshold;
  float keep_scale;
  bool drops;

  __device__ DropoutSpan(const DropoutRule& rule, unsigned sample, uint64_t first)
      : first(first), threshold(rule.threshold), keep_scale(rule.keep_scale), drops(rule.scalars) {
    if (!drops) return;
    seed = rule.scalars->seed;
    stream = dropout_stream(uint64_t(rule.scalars->sample_base + sample), rule.rng_id);
  }
  // A row of `cols` elements, counted over all samples.
  __device__ DropoutSpan(const DropoutRows& d, int64_t row, int64_t cols)  // a grid has fewer rows than 2^32
      : DropoutSpan(d.rule, (unsigned(row) + d.first) / d.rows, uint64_t(d.in_sample(unsigned(row))) * uint64_t(cols)) {
  }
  __device__ explicit operator bool() const { return drops; }

  // A product kept out of fused multiply-adds:
  // results equal a separate dropout's.
  __device__ float kept(uint32_t word, float x) const {
    return (word >> 8) >= threshold ? __fmul_rn(x, keep_scale) : 0.f;
  }
  // N elements from element `at` on; first + at is a multiple of 4.
  template <int N>
  __device__ void drop(float (&x)[N], uint64_t at) const {
    static_assert(N % 4 == 0);
#pragma unroll
    for (int k = 0; k < N; k += 4) {
      Random4 r = philox(seed, stream, (first + at + unsigned(k)) >> 2);
#pragma unroll
      for (int j = 0; j < 4; ++j) x[k + j] = kept(r.x[j], x[k + j]);
    }
  }
  // Element `at`.
  __device__ float dropped(float x, uint64_t at) const { return kept(random_bits(seed, stream, first + at), x); }
  // W elements of storage from element `at` on: one, or whole blocks.
  template <class T, int W>
  __device__ void drop(Vec<T, W>& v, uint64_t at) const {
    if constexpr (W == 1) {
      v.x[0] = narrow<T>(dropped(widen(v.x[0]), at));
    } else {
      float x[W];
#pragma unroll
      for (int e = 0; e < W; ++e) x[e] = widen(v.x[e]);
      drop(x, at);
#pragma unroll
      for (int e = 0; e < W; ++e) v.x[e] = narrow<T>(x[e]);
    }
  }
};

}  // namespace crest::cuda
