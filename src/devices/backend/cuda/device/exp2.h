// 2^x by the special function unit.
#pragma once
#include "backend/cuda/device/platform.h"

namespace crest::cuda {

// Relative error 2^-22; results below 2^-126 become 0, NaN stays NaN.
__device__ inline float exp2_fast(float x) {
#ifdef __CUDACC__
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#else
  return exp2f(x);
#endif
}

}  // namespace crest::cuda
