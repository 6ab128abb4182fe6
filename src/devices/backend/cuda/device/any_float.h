// Elements with a dtype known at run time only: the branch is the same for all threads, and kernels
// with it are bound by memory.
#pragma once
#include "backend/cuda/device/numeric.h"

namespace crest::cuda {

// V elements from i on at once: aligned to V of them.
template <int V>
__device__ inline void load_any(const void* p, DType t, int64_t i, float (&x)[V]) {
  if (t == DType::f32) return load_floats<V>(static_cast<const float*>(p) + i, x);
  if (t == DType::bf16) return load_floats<V>(static_cast<const bfloat16*>(p) + i, x);
  load_floats<V>(static_cast<const float16*>(p) + i, x);
}

// The sum over `count` lists, in fp32 and in their order.
template <int V>
__device__ inline void sum_any(void* const* of, int count, DType t, int64_t i, float (&sum)[V]) {
  load_any(of[0], t, i, sum);
  for (int r = 1; r < count; ++r) {
    float x[V];
    load_any(of[r], t, i, x);
#pragma unroll
    for (int e = 0; e < V; ++e) sum[e] += x[e];
  }
}

template <int V>
__device__ inline void store_any(void* p, DType t, int64_t i, const float (&x)[V]) {
  if (t == DType::f32) return store_floats<V>(static_cast<float*>(p) + i, x);
  if (t == DType::bf16) return store_floats<V>(static_cast<bfloat16*>(p) + i, x);
  store_floats<V>(static_cast<float16*>(p) + i, x);
}

}  // namespace crest::cuda
