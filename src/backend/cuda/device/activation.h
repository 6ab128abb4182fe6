// Activations and their gradients on floats. The text of these functions is part of the source that fused kernels are
// compiled from at run time (fused_source.cpp), so that there is one definition of each: hence the macro, which both
// defines the functions and keeps their text, and no #directives or types of our own inside.
#pragma once
#include "backend/cuda/device/exp2.h"

namespace crest::cuda {

// 1/x by the special function unit, to about two units in the last place.
__device__ inline float reciprocal_fast(float x) {
#ifdef __CUDACC__
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#else
  return 1.f / x;
#endif
}

#define CREST_FUNCTIONS_AND_TEXT(text, ...) \
  __VA_ARGS__                               \
  inline constexpr const char* text = #__VA_ARGS__;

// With u = sqrt(2/pi) (x + 0.044715 x^3): (1 + tanh(u)) / 2 = 1 / (1 + exp(-2u)) = s, so gelu(x) = x s and its slope is
// s + x s (1 - s) 2 du/dx. No tanh, no cancellation for negative x, and two operations of the special function unit.
// The bound on x^2 keeps 0 * infinity away where s is 0 or 1 anyway; a NaN gets through by way of s.
// clang-format off
CREST_FUNCTIONS_AND_TEXT(activation_text,
__device__ inline float sigmoid(float x) { return reciprocal_fast(1.f + exp2_fast(-1.4426950408889634f * x)); }
__device__ inline float silu(float x) { return x * sigmoid(x); }
__device__ inline float silu_grad(float dy, float x) {
  float s = sigmoid(x);
  return dy * fmaf(x, fmaf(-s, s, s), s);
}
__device__ inline float gelu_sigmoid(float x, float x2) {
  constexpr float linear = float(-2 * 0.7978845608028654 * 1.4426950408889634);
  constexpr float cubic = float(-2 * 0.7978845608028654 * 1.4426950408889634 * 0.044715);
  return reciprocal_fast(1.f + exp2_fast(x * fmaf(x2, cubic, linear)));
}
__device__ inline float gelu(float x) { return x * gelu_sigmoid(x, x * x); }
__device__ inline float gelu_grad(float dy, float x) {
  constexpr float linear = float(2 * 0.7978845608028654);
  constexpr float cubic = float(6 * 0.7978845608028654 * 0.044715);
  float x2 = fminf(x * x, 900.f);
  float s = gelu_sigmoid(x, x2);
  return dy * fmaf(x * fmaf(x2, cubic, linear), fmaf(-s, s, s), s);
}
__device__ inline float tanh_grad(float dy, float y) { return dy * fmaf(-y, y, 1.f); }
)
// clang-format on
#undef CREST_FUNCTIONS_AND_TEXT

}  // namespace crest::cuda
