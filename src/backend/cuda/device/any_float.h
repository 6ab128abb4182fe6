// Elements whose dtype is known when the kernel runs: the branch is the same for all threads, and kernels that use it
// are bound by memory.
#pragma once
#include "backend/cuda/device/numeric.h"

namespace crest::cuda {

__device__ inline float load_any(const void* p, DType t, int64_t i) {
  if (t == DType::f32) return static_cast<const float*>(p)[i];
  if (t == DType::bf16) return widen(static_cast<const bfloat16*>(p)[i]);
  return widen(static_cast<const float16*>(p)[i]);
}

__device__ inline void store_any(void* p, DType t, int64_t i, float x) {
  if (t == DType::f32)
    static_cast<float*>(p)[i] = x;
  else if (t == DType::bf16)
    static_cast<bfloat16*>(p)[i] = narrow<bfloat16>(x);
  else
    static_cast<float16*>(p)[i] = narrow<float16>(x);
}

}  // namespace crest::cuda
