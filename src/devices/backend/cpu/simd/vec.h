// Vectors of floats, as wide as the instruction set of this file (GCC vector extensions), loads and
// stores of f32, bf16 and f16, exp and tanh. All names live in the namespace of the instruction
// set, so the linker can never merge code of different sets; nothing here calls inline functions of
// other headers.
#pragma once
#include <cstddef>
#include <cstdint>

#include "core/dtype.h"
#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace crest::cpu::CREST_ISA {

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512VL__)
#define CREST_LANES 16
#elif defined(__AVX2__) && defined(__F16C__)
#define CREST_LANES 8
#else
#define CREST_LANES 4
#endif
inline constexpr int lanes = CREST_LANES;
#define CREST_INLINE inline __attribute__((always_inline))

typedef float Vf __attribute__((vector_size(CREST_LANES * 4)));
typedef int32_t Vi __attribute__((vector_size(CREST_LANES * 4)));
typedef uint32_t Vu __attribute__((vector_size(CREST_LANES * 4)));
typedef uint64_t Vq __attribute__((vector_size(CREST_LANES * 4)));
typedef uint16_t Vh __attribute__((vector_size(CREST_LANES * 2)));
typedef float VfMemory __attribute__((vector_size(CREST_LANES * 4), aligned(4), may_alias));
typedef uint32_t VuMemory __attribute__((vector_size(CREST_LANES * 4), aligned(4), may_alias));
typedef uint64_t VqMemory __attribute__((vector_size(CREST_LANES * 4), aligned(8), may_alias));
typedef uint16_t VhMemory __attribute__((vector_size(CREST_LANES * 2), aligned(2), may_alias));

#if CREST_LANES == 4
typedef int8_t VbMemory __attribute__((vector_size(4), aligned(1), may_alias));
#endif

// x - 0 is x also for -0, so the compiler drops the subtraction.
CREST_INLINE Vf splat(float x) { return x - Vf{}; }
CREST_INLINE Vu splat_u(uint32_t x) { return Vu{} + x; }
CREST_INLINE Vf as_float(Vu x) { return (Vf)x; }
CREST_INLINE Vu as_bits(Vf x) { return (Vu)x; }

CREST_INLINE Vf widen_bf16(Vh h) { return as_float(__builtin_convertvector(h, Vu) << 16); }
// Round to nearest even; NaN stays NaN.
CREST_INLINE Vh narrow_bf16(Vf x) {
  Vu u = as_bits(x);
  Vu rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
  Vu quiet = (u >> 16) | 0x40u;
  return __builtin_convertvector((u & 0x7fffffffu) > 0x7f800000u ? quiet : rounded, Vh);
}

// The weight of an fp32 master (core/split_float.h): ties away from zero.
CREST_INLINE Vh weight_of_master(Vf x) {
  Vu u = as_bits(x);
  Vu quiet = (u >> 16) | 0x40u;
  return __builtin_convertvector((u & 0x7fffffffu) > 0x7f800000u ? quiet : (u + 0x8000u) >> 16, Vh);
}

// The masked forms because GCC 12 warns about its own header otherwise (bug 105593).
#if CREST_LANES == 16
CREST_INLINE Vf widen_f16(Vh h) { return (Vf)_mm512_maskz_cvtph_ps(0xffff, (__m256i)h); }
CREST_INLINE Vh narrow_f16(Vf x) { return (Vh)_mm512_maskz_cvtps_ph(0xffff, (__m512)x, _MM_FROUND_TO_NEAREST_INT); }
#elif CREST_LANES == 8
CREST_INLINE Vf widen_f16(Vh h) { return (Vf)_mm256_cvtph_ps((__m128i)h); }
CREST_INLINE Vh narrow_f16(Vf x) { return (Vh)_mm256_cvtps_ph((__m256)x, _MM_FROUND_TO_NEAREST_INT); }
#else
// Shifts the fields into place and lets one multiplication renormalize subnormals.
CREST_INLINE Vf widen_f16(Vh h) {
  Vu u = __builtin_convertvector(h, Vu);
  Vu sign = (u & 0x8000u) << 16, magnitude = (u & 0x7fffu) << 13;
  Vf scaled = as_float(magnitude) * 0x1p112f;
  Vu special = magnitude | 0x7f800000u;
  return as_float(((u & 0x7c00u) == 0x7c00u ? special : as_bits(scaled)) | sign);
}
// Normal results round in the integer domain; subnormal ones by adding 0.5, with a unit in the last
// place of 2^-24.
CREST_INLINE Vh narrow_f16(Vf x) {
  Vu u = as_bits(x), sign = (u >> 16) & 0x8000u, a = u & 0x7fffffffu;
  Vu normal = (a - (112u << 23) + 0xfffu + ((a >> 13) & 1u)) >> 13;
  Vu tiny = as_bits(as_float(a) + 0.5f) - 0x3f000000u;
  Vu r = a < 0x38800000u ? tiny : normal;
  r = a >= 0x477ff000u ? splat_u(0x7c00u) : r;
  r = a > 0x7f800000u ? 0x7e00u | ((a >> 13) & 0x3ffu) : r;
  return __builtin_convertvector(r | sign, Vh);
}
#endif

CREST_INLINE Vf load(const float* p) { return *(const VfMemory*)p; }
CREST_INLINE Vf load(const bfloat16* p) { return widen_bf16(*(const VhMemory*)p); }
CREST_INLINE Vf load(const float16* p) { return widen_f16(*(const VhMemory*)p); }
CREST_INLINE void store(float* p, Vf x) { *(VfMemory*)p = x; }
CREST_INLINE void store(bfloat16* p, Vf x) { *(VhMemory*)p = narrow_bf16(x); }
CREST_INLINE void store(float16* p, Vf x) { *(VhMemory*)p = narrow_f16(x); }

// GCC 12 takes a conversion of 8-bit vectors to 32 bits apart into scalars.
#if CREST_LANES == 16
CREST_INLINE Vi load_ints(const int8_t* p) {
  return (Vi)_mm512_maskz_cvtepi8_epi32(0xffff, _mm_loadu_si128((const __m128i*)p));
}
#elif CREST_LANES == 8
CREST_INLINE Vi load_ints(const int8_t* p) { return (Vi)_mm256_cvtepi8_epi32(_mm_loadu_si64(p)); }
#else
CREST_INLINE Vi load_ints(const int8_t* p) { return __builtin_convertvector(*(const VbMemory*)p, Vi); }
#endif
CREST_INLINE Vf load(const int8_t* p) { return __builtin_convertvector(load_ints(p), Vf); }

// The first n (< lanes) elements; the other lanes are zero / not written.
#if CREST_LANES == 16
CREST_INLINE Vf load_n(const float* p, int64_t n) { return (Vf)_mm512_maskz_loadu_ps(__mmask16((1u << n) - 1), p); }
CREST_INLINE void store_n(float* p, Vf x, int64_t n) { _mm512_mask_storeu_ps(p, __mmask16((1u << n) - 1), (__m512)x); }
CREST_INLINE Vh load_bits_n(const void* p, int64_t n) {
  return (Vh)_mm256_maskz_loadu_epi16(__mmask16((1u << n) - 1), p);
}
CREST_INLINE void store_bits_n(void* p, Vh x, int64_t n) {
  _mm256_mask_storeu_epi16(p, __mmask16((1u << n) - 1), (__m256i)x);
}
#else
CREST_INLINE Vf load_n(const float* p, int64_t n) {
  float t[lanes] = {};
  for (int64_t i = 0; i < n; ++i) t[i] = p[i];
  return load(t);
}
CREST_INLINE void store_n(float* p, Vf x, int64_t n) {
  float t[lanes];
  store(t, x);
  for (int64_t i = 0; i < n; ++i) p[i] = t[i];
}
CREST_INLINE Vh load_bits_n(const void* p, int64_t n) {
  uint16_t t[lanes] = {};
  for (int64_t i = 0; i < n; ++i) t[i] = ((const uint16_t*)p)[i];
  return *(const VhMemory*)t;
}
CREST_INLINE void store_bits_n(void* p, Vh x, int64_t n) {
  uint16_t t[lanes];
  *(VhMemory*)t = x;
  for (int64_t i = 0; i < n; ++i) ((uint16_t*)p)[i] = t[i];
}
#endif
CREST_INLINE Vf load_n(const int8_t* p, int64_t n) {
  int8_t t[lanes] = {};
  for (int64_t i = 0; i < n; ++i) t[i] = p[i];
  return load(t);
}
CREST_INLINE Vf load_n(const bfloat16* p, int64_t n) { return widen_bf16(load_bits_n(p, n)); }
CREST_INLINE Vf load_n(const float16* p, int64_t n) { return widen_f16(load_bits_n(p, n)); }
CREST_INLINE void store_n(bfloat16* p, Vf x, int64_t n) { store_bits_n(p, narrow_bf16(x), n); }
CREST_INLINE void store_n(float16* p, Vf x, int64_t n) { store_bits_n(p, narrow_f16(x), n); }

typedef float V4 __attribute__((vector_size(16)));
#if CREST_LANES >= 8
typedef float V8 __attribute__((vector_size(32)));
CREST_INLINE V4 low(V8 x) { return __builtin_shufflevector(x, x, 0, 1, 2, 3); }
CREST_INLINE V4 high(V8 x) { return __builtin_shufflevector(x, x, 4, 5, 6, 7); }
#endif
#if CREST_LANES == 16
CREST_INLINE V8 low(Vf x) { return __builtin_shufflevector(x, x, 0, 1, 2, 3, 4, 5, 6, 7); }
CREST_INLINE V8 high(Vf x) { return __builtin_shufflevector(x, x, 8, 9, 10, 11, 12, 13, 14, 15); }
CREST_INLINE V4 fold(Vf x) {
  V8 y = low(x) + high(x);
  return low(y) + high(y);
}
#elif CREST_LANES == 8
CREST_INLINE V4 fold(Vf x) { return low(x) + high(x); }
#else
CREST_INLINE V4 fold(Vf x) { return x; }
#endif
CREST_INLINE float sum(Vf x) {
  V4 y = fold(x);
  y += __builtin_shufflevector(y, y, 2, 3, 0, 1);
  return y[0] + y[1];
}
// Keeps b where a is NaN, as a > b ? a : b does.
CREST_INLINE Vf max(Vf a, Vf b) { return a > b ? a : b; }
CREST_INLINE float max_of(Vf x) {
  float m = x[0];
  for (int i = 1; i < lanes; ++i) m = x[i] > m ? x[i] : m;
  return m;
}

// 2^x, relative error below 2.4e-7 for x >= -126; below: 0 (also for -inf); above 128: inf; NaN
// stays NaN. x = n + f with |f| <= 1/2, Taylor polynomial of degree 7 of exp(f ln 2) (its remainder
// is below 1e-8).
CREST_INLINE Vf exp2(Vf x) {
  Vf c = x > 128.0f ? splat(128.0f) : x;
  c = c < -126.0f ? splat(-126.0f) : c;
  Vf shifted = c + 12582912.0f;  // 1.5 * 2^23: rounds to an integer in the low bits
  Vf n = shifted - 12582912.0f;
  Vf f = c - n;
  Vf p = splat(1.52527338e-5f);
  p = p * f + 1.54035304e-4f;
  p = p * f + 1.33335581e-3f;
  p = p * f + 9.61812911e-3f;
  p = p * f + 5.55041087e-2f;
  p = p * f + 2.40226507e-1f;
  p = p * f + 6.93147181e-1f;
  p = p * f + 1.0f;
  // Two factors, so n = 128 overflows to infinity and n = -126 stays normal.
  Vi k = (Vi)as_bits(shifted) - 0x4b400000, half = k >> 1;
  Vf r = p * as_float((Vu)((half + 127) << 23)) * as_float((Vu)((k - half + 127) << 23));
  return x < -126.0f ? Vf{} : r;
}
// The same for x <= 1 (probabilities): one factor suffices.
CREST_INLINE Vf exp2_negative(Vf x) {
  Vf c = x < -126.0f ? splat(-126.0f) : x;
  Vf shifted = c + 12582912.0f;
  Vf f = c - (shifted - 12582912.0f);
  Vf p = splat(1.54035304e-4f);
  p = p * f + 1.33335581e-3f;
  p = p * f + 9.61812911e-3f;
  p = p * f + 5.55041087e-2f;
  p = p * f + 2.40226507e-1f;
  p = p * f + 6.93147181e-1f;
  p = p * f + 1.0f;
  Vf r = p * as_float((as_bits(shifted) << 23) + 0x3f800000u);
  return x < -126.0f ? Vf{} : r;
}
// e^x: the argument is reduced in two steps (Cody and Waite), relative error below 2e-7 inside
// (-87.3, 88.7).
CREST_INLINE Vf exp(Vf x) {
  Vf c = x > 89.0f ? splat(89.0f) : x;
  c = c < -87.3f ? splat(-87.3f) : c;
  Vf shifted = c * 1.44269504f + 12582912.0f;
  Vf n = shifted - 12582912.0f;
  Vf f = c - n * 0.693359375f;
  f = f + n * 2.12194440e-4f;
  Vf p = splat(1.98412698e-4f);
  p = p * f + 1.38888889e-3f;
  p = p * f + 8.33333333e-3f;
  p = p * f + 4.16666667e-2f;
  p = p * f + 1.66666667e-1f;
  p = p * f + 0.5f;
  p = p * f + 1.0f;
  p = p * f + 1.0f;
  Vi k = (Vi)as_bits(shifted) - 0x4b400000, half = k >> 1;
  Vf r = p * as_float((Vu)((half + 127) << 23)) * as_float((Vu)((k - half + 127) << 23));
  return x < -87.3f ? Vf{} : r;
}
// e^x for x in [-87.3, 88]; NaN stays NaN. Argument reduction in two steps (Cody and Waite) to
// |f| <= ln(2)/2, Taylor polynomial of degree 6 (remainder 1.2e-7), and the exponent added as bits;
// relative error below 3e-7.
CREST_INLINE Vf exp_in_range(Vf x) {
  Vf shifted = x * 1.44269504f + 12582912.0f;
  Vf n = shifted - 12582912.0f;
  Vf f = x - n * 0.693359375f;
  f = f + n * 2.12194440e-4f;
  Vf p = splat(1.38888889e-3f);
  p = p * f + 8.33333333e-3f;
  p = p * f + 4.16666667e-2f;
  p = p * f + 1.66666667e-1f;
  p = p * f + 0.5f;
  p = p * f + 1.0f;
  p = p * f + 1.0f;
  return p * as_float((as_bits(shifted) << 23) + 0x3f800000u);
}
// The same for arguments clamped to [-80, 80], where nothing overflows.
CREST_INLINE Vf exp_clamped(Vf x) {
  Vf c = x > 80.0f ? splat(80.0f) : x;
  return exp_in_range(c < -80.0f ? splat(-80.0f) : c);
}
// 1/x for normal x with a normal result, relative error below 1.2e-7: an estimate and a Newton step
// take a third of the time of a division of 16 lanes.
CREST_INLINE Vf reciprocal(Vf x) {
#if CREST_LANES == 16
  Vf r = (Vf)_mm512_maskz_rcp14_ps(0xffff, (__m512)x);
  return r + r * (1.0f - x * r);
#else
  return 1.0f / x;
#endif
}
CREST_INLINE Vf sigmoid(Vf x) { return reciprocal(1.0f + exp_clamped(-x)); }
// tanh x: a series to x^9 below 0.25 (absolute error 2e-8), else 1 - 2/(1 + e^2x) (absolute error
// below 1.5e-7).
CREST_INLINE Vf tanh(Vf x) {
  Vf x2 = x * x;
  Vf s = splat(62.0f / 2835);
  s = s * x2 + (-17.0f / 315);
  s = s * x2 + (2.0f / 15);
  s = s * x2 + (-1.0f / 3);
  s = s * x2 * x + x;
  Vf magnitude = as_float(as_bits(x) & 0x7fffffffu);
  Vf t = 1.0f - 2.0f * reciprocal(1.0f + exp_clamped(magnitude + magnitude));
  t = as_float(as_bits(t) | (as_bits(x) & 0x80000000u));
  return magnitude < 0.25f ? s : t;
}

// A row as floats: f32 rows are used where they are, others are converted into scratch.
template <class T>
CREST_INLINE void widen_row(float* to, const T* from, int64_t n) {
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) store(to + i, load(from + i));
  if (i < n) store_n(to + i, load_n(from + i, n - i), n - i);
}
CREST_INLINE const float* as_floats(const void* p, DType t, int64_t n, float* scratch) {
  if (t == DType::f32) return (const float*)p;
  if (t == DType::bf16)
    widen_row(scratch, (const bfloat16*)p, n);
  else
    widen_row(scratch, (const float16*)p, n);
  return scratch;
}
template <class T>
CREST_INLINE void narrow_row(T* to, const float* from, int64_t n) {
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) store(to + i, load(from + i));
  if (i < n) store_n(to + i, load_n(from + i, n - i), n - i);
}
CREST_INLINE void from_floats(void* p, DType t, int64_t n, const float* from) {
  if (t == DType::f32) {
    if (p != (const void*)from) narrow_row((float*)p, from, n);
  } else if (t == DType::bf16) {
    narrow_row((bfloat16*)p, from, n);
  } else {
    narrow_row((float16*)p, from, n);
  }
}
// Calls f(offset, load, store) helpers for full vectors and the tail: BODY uses LOAD(p) and
// STORE(p, x).
template <class F>
CREST_INLINE void for_vectors(int64_t n, F f) {
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) f(i, int64_t(lanes));
  if (i < n) f(i, n - i);
}
// Loads and stores, whole if n is the number of lanes.
template <class T>
CREST_INLINE Vf load_some(const T* p, int64_t n) {
  return n == lanes ? load(p) : load_n(p, n);
}
template <class T>
CREST_INLINE void store_some(T* p, Vf x, int64_t n) {
  if (n == lanes)
    store(p, x);
  else
    store_n(p, x, n);
}
CREST_INLINE void store_bits_some(void* p, Vh x, int64_t n) {
  if (n == lanes)
    *(VhMemory*)p = x;
  else
    store_bits_n(p, x, n);
}
CREST_INLINE void* row_of(void* p, DType t, int64_t element) {
  return (char*)p + element * int64_t(t == DType::f32 ? 4 : 2);
}
CREST_INLINE const void* row_of(const void* p, DType t, int64_t element) {
  return (const char*)p + element * int64_t(t == DType::f32 ? 4 : 2);
}

}  // namespace crest::cpu::CREST_ISA
