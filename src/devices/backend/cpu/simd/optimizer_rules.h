// Vector arithmetic for the rules of
// optimizers, and parameters in two halves.
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
    Vu lower = (bits & 0x7fffffffu) > 0x7f800000u ? Vu{} : bits & 0xffffu;
    store_bits_some((uint16_t*)high + i, weight_of_master(as_float(bits)), k);
    store_bits_some((uint16_t*)low + i, __builtin_convertvector(lower, Vh), k);
  });
}

// The weights of n whole masters.
CREST_INLINE void weights_of_masters(void* to, DType t, const float* from, int64_t n) {
  if (t != DType::bf16) return from_floats(to, t, n, from);
  for_vectors(n, [&](int64_t i, int64_t k) {
    store_bits_some((uint16_t*)to + i, weight_of_master(load_some(from + i, k)), k);
  });
}

// Of ops/update_rules.h.
struct VectorMath {
  using Number = Vf;
  using Factor = float;
  static CREST_INLINE Vf splat(float x) { return CREST_ISA::splat(x); }
  static CREST_INLINE Vf root(Vf x) { return square_root(x); }
};

}  // namespace crest::cpu::CREST_ISA
