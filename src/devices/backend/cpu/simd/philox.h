// Philox4x32-10 (core/random.h) with one counter per 64-bit lane.
#pragma once
#include "backend/cpu/simd/vec.h"

namespace crest::cpu::CREST_ISA {

inline constexpr int philox_lanes = lanes / 2;

CREST_INLINE Vq multiply_low_words(Vq a, uint32_t b) {
#if CREST_LANES == 16
  return (Vq)_mm512_maskz_mul_epu32(0xff, (__m512i)a, (__m512i)(Vq{} + b));
#elif CREST_LANES == 8
  return (Vq)_mm256_mul_epu32((__m256i)a, (__m256i)(Vq{} + b));
#else
  return (a & 0xffffffffu) * (Vq{} + b);
#endif
}

// Words 0..3 of each lane's counter (low: 64 bits per lane) in the low halves of x[0..3]; the high
// halves are not clean.
CREST_INLINE void philox_vector(uint64_t key, uint64_t high, Vq low, Vq x[4]) {
  Vq c0 = low, c1 = low >> 32, c2 = Vq{} + high, c3 = Vq{} + (high >> 32);
  uint32_t k0 = uint32_t(key), k1 = uint32_t(key >> 32);
  for (int round = 0; round < 10; ++round) {
    Vq p0 = multiply_low_words(c0, 0xD2511F53u), p1 = multiply_low_words(c2, 0xCD9E8D57u);
    c0 = (p1 >> 32) ^ c1 ^ uint64_t(k0);
    c2 = (p0 >> 32) ^ c3 ^ uint64_t(k1);
    c1 = p1, c3 = p0;
    k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;
  }
  x[0] = c0, x[1] = c1, x[2] = c2, x[3] = c3;
}

// The random words of elements 4 first_block .. 4 (first_block + blocks) - 1; `words` has room for
// blocks rounded up to a multiple of philox_lanes.
inline void philox_words(uint64_t key, uint64_t stream, uint64_t first_block, int64_t blocks, uint32_t* words) {
  Vq step{};
  for (int i = 0; i < philox_lanes; ++i) step[i] = uint64_t(i);
  for (int64_t b = 0; b < blocks; b += philox_lanes) {
    Vq x[4];
    philox_vector(key, stream, step + (first_block + uint64_t(b)), x);
    Vq first = (x[0] & 0xffffffffu) | (x[1] << 32), second = (x[2] & 0xffffffffu) | (x[3] << 32);
#if CREST_LANES == 16
    Vq l = __builtin_shufflevector(first, second, 0, 8, 1, 9, 2, 10, 3, 11);
    Vq h = __builtin_shufflevector(first, second, 4, 12, 5, 13, 6, 14, 7, 15);
#elif CREST_LANES == 8
    Vq l = __builtin_shufflevector(first, second, 0, 4, 1, 5);
    Vq h = __builtin_shufflevector(first, second, 2, 6, 3, 7);
#else
    Vq l = __builtin_shufflevector(first, second, 0, 2);
    Vq h = __builtin_shufflevector(first, second, 1, 3);
#endif
    *(VuMemory*)(words + 4 * b) = (Vu)l;
    *(VuMemory*)(words + 4 * b + lanes) = (Vu)h;
  }
}

// uniform(word) >= p as a comparison of integers: word >> 8 >= ceil(p 2^24).
CREST_INLINE uint32_t keep_threshold(double p) {
  double t = p * 16777216.0;
  uint32_t n = uint32_t(t);
  return double(n) < t ? n + 1 : n;
}

}  // namespace crest::cpu::CREST_ISA
