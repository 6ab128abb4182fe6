// The element-wise optimizers on vectors of floats: each changes parameter and states. A new one is a few lines here.
#pragma once
#include "backend/cpu/simd/optimizer.h"
#include "backend/cpu/simd/vec.h"

namespace crest::cpu::CREST_ISA {

CREST_INLINE Vf square_root(Vf x) {
#if defined(__x86_64__) && CREST_LANES == 16
  return (Vf)_mm512_maskz_sqrt_ps(0xffff, (__m512)x);
#elif defined(__x86_64__) && CREST_LANES == 8
  return (Vf)_mm256_sqrt_ps((__m256)x);
#elif defined(__x86_64__)
  return (Vf)_mm_sqrt_ps((__m128)x);
#else
  for (int i = 0; i < lanes; ++i) x[i] = __builtin_sqrtf(x[i]);
  return x;
#endif
}

// core/split_float.h: n floats out of their halves, and back.
CREST_INLINE void join_halves(const void* high, const void* low, float* to, int64_t n) {
  for_vectors(n, [&](int64_t i, int64_t k) {
    Vu upper = as_bits(load_some((const bfloat16*)high + i, k)),
       lower = as_bits(load_some((const bfloat16*)low + i, k));
    store_some(to + i, as_float(upper + (((lower >> 16) ^ 0x8000u) - 0x8000u)), k);
  });
}
CREST_INLINE void split_halves(const float* from, void* high, void* low, int64_t n) {
  for_vectors(n, [&](int64_t i, int64_t k) {
    Vu bits = as_bits(load_some(from + i, k));
    auto is_nan = (bits & 0x7fffffffu) > 0x7f800000u;
    Vu upper = is_nan ? (bits >> 16) | 0x40u : (bits + 0x8000u) >> 16, lower = is_nan ? Vu{} : bits & 0xffffu;
    store_bits_some((uint16_t*)high + i, __builtin_convertvector(upper, Vh), k);
    store_bits_some((uint16_t*)low + i, __builtin_convertvector(lower, Vh), k);
  });
}

// Loshchilov and Hutter, "Decoupled Weight Decay Regularization" (ICLR 2019), algorithm 2.
struct AdamW {
  static constexpr int states = 2;
  static CREST_INLINE void apply(const UpdateStep& s, Vf g, Vf& p, Vf* state) {
    Vf m = state[0] = state[0] * s.beta1 + g * s.one_minus_beta1;
    Vf v = state[1] = state[1] * s.beta2 + g * g * s.one_minus_beta2;
    Vf update = m * s.correction1 / (square_root(v * s.correction2) + s.eps);
    p = p - p * s.decay - update * s.lr;
  }
};

// Momentum (beta1) in PyTorch's form, with decoupled decay.
struct Sgd {
  static constexpr int states = 1;
  static CREST_INLINE void apply(const UpdateStep& s, Vf g, Vf& p, Vf* state) {
    state[0] = state[0] * s.beta1 + g;
    p = p - p * s.decay - state[0] * s.lr;
  }
};

// Chen et al., "Symbolic Discovery of Optimization Algorithms" (2023), algorithm 2.
struct Lion {
  static constexpr int states = 1;
  static CREST_INLINE void apply(const UpdateStep& s, Vf g, Vf& p, Vf* state) {
    Vf direction = state[0] * s.beta1 + g * s.one_minus_beta1;
    Vf step = direction > 0.0f ? splat(s.lr) : Vf{};
    step = direction < 0.0f ? splat(-s.lr) : step;
    p = p - p * s.decay - step;
    state[0] = state[0] * s.beta2 + g * s.one_minus_beta2;
  }
};

}  // namespace crest::cpu::CREST_ISA
