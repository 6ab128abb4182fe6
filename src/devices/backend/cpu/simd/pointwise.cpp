#include "backend/cpu/simd/pointwise.h"

#include "backend/cpu/simd/gelu.h"
#include "backend/cpu/simd/vec.h"
#include "core/normal_tail.h"

namespace crest::cpu::CREST_ISA {
namespace {

// Applies f(a, b, value) to vectors; b is not read when `unary`.
template <bool unary, class F>
CREST_INLINE void apply(float* out, const float* a, const float* b, int64_t n, float value, F f) {
  Vf v = splat(value);
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) store(out + i, f(load(a + i), unary ? v : load(b + i), v));
  if (i < n) store_n(out + i, f(load_n(a + i, n - i), unary ? v : load_n(b + i, n - i), v), n - i);
}

// s + x s (1 - s) du/dx with s = sigmoid(2u).
CREST_INLINE Vf gelu_slope(Vf x) {
  Vf x2 = x * x;
  Vf s = sigmoid(2.0f * gelu_c * x * (1.0f + gelu_k * x2));
  // 1 - s may cancel to 0 while x^3 overflows: the product is 0 there.
  Vf d = x * s * (1.0f - s) * (2.0f * gelu_c) * (1.0f + 3.0f * gelu_k * x2);
  Vf magnitude = as_float(as_bits(x) & 0x7fffffffu);
  return s + (magnitude > 20.0f ? Vf{} : d);
}

// Of a standard normal X at x.
struct Normal {
  Vf magnitude, bell, below;  // |x| up to 20, exp(-x^2 / 2), P(X <= x)
};
CREST_INLINE Normal normal_of(Vf x) {
  Vf z = as_float(as_bits(x) & 0x7fffffffu);
  z = z > 20.0f ? splat(20.0f) : z;
  Vf t = reciprocal(1.0f + normal_tail_scale * z), q = splat(normal_tail[0]);
  for (int i = 1; i < normal_tail_terms; ++i) q = q * t + normal_tail[i];
  Vf bell = exp(-0.5f * z * z), tail = t * q * bell;
  return {z, bell, x > 0.0f ? 1.0f - tail : tail};
}
CREST_INLINE Vf gelu_erf_of(Vf x) { return x * normal_of(x).below; }
CREST_INLINE Vf gelu_erf_slope(Vf x) {
  Normal n = normal_of(x);
  Vf signed_magnitude = as_float(as_bits(n.magnitude) | (as_bits(x) & 0x80000000u));
  return n.below + 0.3989422804014327f * signed_magnitude * n.bell;  // 1 / sqrt(2 pi)
}

CREST_INLINE Vf silu_slope(Vf a, Vf b) {
  Vf s = sigmoid(b);
  return a * s * (1.0f + b * (1.0f - s));
}

#define CREST_STEP(name, unary, expression)                                                      \
  void name(float* out, const float* pa, const float* pb, int64_t n, float value) {              \
    apply<unary>(out, pa, pb, n, value,                                                          \
                 [](Vf a, [[maybe_unused]] Vf b, [[maybe_unused]] Vf v) { return expression; }); \
  }
CREST_STEP(step_add, false, a + b)
CREST_STEP(step_mul, false, a* b)
CREST_STEP(step_scale, true, a* v)
CREST_STEP(step_add_scalar, true, a + v)
CREST_STEP(step_tanh, true, tanh(a))
CREST_STEP(step_tanh_grad, false, a*(1.0f - b * b))
CREST_STEP(step_gelu, true, gelu_of(a))
CREST_STEP(step_gelu_grad, false, a* gelu_slope(b))
CREST_STEP(step_gelu_erf, true, gelu_erf_of(a))
CREST_STEP(step_gelu_erf_grad, false, a* gelu_erf_slope(b))
CREST_STEP(step_silu, true, a* sigmoid(a))
CREST_STEP(step_silu_grad, false, silu_slope(a, b))
CREST_STEP(step_relu, true, a < 0.0f ? Vf{} : a)
CREST_STEP(step_relu_grad, false, b > 0.0f ? a : Vf{})
#undef CREST_STEP

void load_tile(float* to, const void* from, DType t, int64_t n) {
  if (t == DType::f32)
    widen_row(to, (const float*)from, n);
  else
    as_floats(from, t, n, to);
}

void store_tile(void* to, DType t, const float* from, int64_t n) { from_floats(to, t, n, from); }

void column_sums(float* sums, const float* x, int64_t first, int64_t n, int64_t columns) {
  int64_t column = first % columns;
  while (n > 0) {
    int64_t k = columns - column < n ? columns - column : n;
    float* s = sums + column;
    for_vectors(k, [&](int64_t i, int64_t m) { store_some(s + i, load_some(s + i, m) + load_some(x + i, m), m); });
    x += k, n -= k, column = 0;
  }
}

}  // namespace

#define CREST_LIST_STEP(op, inputs, outputs) step_##op,
const PointwiseFunctions pointwise_functions = {CREST_POINTWISE_OPS(CREST_LIST_STEP) load_tile, store_tile,
                                                column_sums};
#undef CREST_LIST_STEP

}  // namespace crest::cpu::CREST_ISA
