// Activations and their gradients on floats; pointwise_NAME(a, b, value)
// for each of ops/pointwise_ops.h. Fused kernels compiled at run time
// contain the text of these functions (fused_source.cpp). The macro both
// defines the functions and keeps their text, so there is one definition
// of each. Hence no #directives and no types of our own inside.
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

// With u = sqrt(2/pi) (x + 0.044715 x^3): (1 + tanh(u)) / 2 = 1 / (1 + exp(-2u)) = s, so gelu(x) =
// x s and its slope is s + x s (1 - s) 2 du/dx. No tanh, no cancellation for negative x, and two
// operations of the special function unit. The bound on x^2 keeps 0 * infinity away where s is 0 or
// 1 anyway; a NaN gets through by way of s. The exact GELU is x P(X <= x) of a standard normal X:
// coefficients of core/normal_tail.h. At |x| = 20 the tail is 0 already.
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
__device__ inline float normal_below(float x, float bell) {
  float z = fminf(fabsf(x), 20.f);
  float t = reciprocal_fast(fmaf(0.35f, z, 1.f));
  float q = fmaf(-0.029679522f, t, 0.14654583f);
  q = fmaf(q, t, -0.26096123f);
  q = fmaf(q, t, 0.165051f);
  q = fmaf(q, t, -0.027046608f);
  q = fmaf(q, t, 0.10711459f);
  q = fmaf(q, t, 0.11944492f);
  q = fmaf(q, t, 0.1399123f);
  q = fmaf(q, t, 0.13961871f);
  float tail = q * t * bell;
  return x > 0.f ? 1.f - tail : tail;
}
__device__ inline float normal_bell(float x) {
  float z = fminf(fabsf(x), 20.f);
  return exp2_fast(-0.72134752f * z * z);
}
__device__ inline float gelu_erf(float x) { return x * normal_below(x, normal_bell(x)); }
__device__ inline float gelu_erf_grad(float dy, float x) {
  float bell = normal_bell(x);
  return dy * fmaf(0.39894228f * x, bell, normal_below(x, bell));
}
__device__ inline float pointwise_add(float a, float b, float) { return a + b; }
__device__ inline float pointwise_mul(float a, float b, float) { return a * b; }
__device__ inline float pointwise_scale(float a, float, float value) { return a * value; }
__device__ inline float pointwise_add_scalar(float a, float, float value) { return a + value; }
__device__ inline float pointwise_tanh(float a, float, float) { return tanhf(a); }
__device__ inline float pointwise_tanh_grad(float dy, float y, float) { return dy * fmaf(-y, y, 1.f); }
__device__ inline float pointwise_gelu(float a, float, float) { return gelu(a); }
__device__ inline float pointwise_gelu_grad(float dy, float x, float) { return gelu_grad(dy, x); }
__device__ inline float pointwise_gelu_erf(float a, float, float) { return gelu_erf(a); }
__device__ inline float pointwise_gelu_erf_grad(float dy, float x, float) { return gelu_erf_grad(dy, x); }
__device__ inline float pointwise_silu(float a, float, float) { return silu(a); }
__device__ inline float pointwise_silu_grad(float dy, float x, float) { return silu_grad(dy, x); }
__device__ inline float pointwise_relu(float a, float, float) { return a < 0.f ? 0.f : a; }
__device__ inline float pointwise_relu_grad(float dy, float x, float) { return x > 0.f ? dy : 0.f; }
)
// clang-format on

// gelu(x) and its slope.
__device__ inline float gelu_and_slope(float x, float& gelu_x) {
  constexpr float linear = float(2 * 0.7978845608028654);
  constexpr float cubic = float(6 * 0.7978845608028654 * 0.044715);
  float x2 = fminf(x * x, 900.f);
  float s = gelu_sigmoid(x, x2);
  gelu_x = x * s;
  return fmaf(x * fmaf(x2, cubic, linear), fmaf(-s, s, s), s);
}
// dx is gelu_grad(dy, x).
__device__ inline void gelu_and_grad(float dy, float x, float& gelu_x, float& dx) {
  dx = dy * gelu_and_slope(x, gelu_x);
}
// a = silu(g) u, and its gradients with respect to g and u.
__device__ inline void swiglu_and_grad(float da, float g, float u, float& a, float& dg, float& du) {
  float s = sigmoid(g), gate = g * s;
  a = gate * u;
  dg = da * u * fmaf(gate, 1.f - s, s);
  du = da * gate;
}
#undef CREST_FUNCTIONS_AND_TEXT

}  // namespace crest::cuda
