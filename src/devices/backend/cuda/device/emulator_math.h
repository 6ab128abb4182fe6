// The emulator's vector types, mathematical and bit functions under CUDA's names.
#pragma once
#include <math.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <type_traits>

template <class T>
inline constexpr bool crest_emulator_vector = false;

#define CREST_VECTOR(base, T, align2, align4)                                \
  struct base##1 {                                                           \
    T x;                                                                     \
  };                                                                         \
  struct alignas(align2) base##2 {                                           \
    T x, y;                                                                  \
  };                                                                         \
  struct base##3 {                                                           \
    T x, y, z;                                                               \
  };                                                                         \
  struct alignas(align4) base##4 {                                           \
    T x, y, z, w;                                                            \
  };                                                                         \
  inline base##1 make_##base##1(T x) { return {x}; }                         \
  inline base##2 make_##base##2(T x, T y) { return {x, y}; }                 \
  inline base##3 make_##base##3(T x, T y, T z) { return {x, y, z}; }         \
  inline base##4 make_##base##4(T x, T y, T z, T w) { return {x, y, z, w}; } \
  template <>                                                                \
  inline constexpr bool crest_emulator_vector<base##2> = true;               \
  template <>                                                                \
  inline constexpr bool crest_emulator_vector<base##4> = true;
CREST_VECTOR(char, signed char, 2, 4)
CREST_VECTOR(uchar, unsigned char, 2, 4)
CREST_VECTOR(short, short, 4, 8)
CREST_VECTOR(ushort, unsigned short, 4, 8)
CREST_VECTOR(int, int, 8, 16)
CREST_VECTOR(uint, unsigned, 8, 16)
CREST_VECTOR(float, float, 8, 16)
CREST_VECTOR(longlong, long long, 16, 16)
CREST_VECTOR(ulonglong, unsigned long long, 16, 16)
CREST_VECTOR(double, double, 16, 16)
#undef CREST_VECTOR

template <class T>
concept CrestEmulatorBuiltin = std::is_arithmetic_v<T> || crest_emulator_vector<T>;

struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};

// As CUDA's overloads: mixed arguments meet in their common type; of a NaN and a number the number.
template <class A, class B>
inline auto min(A a, B b) {
  using T = std::common_type_t<A, B>;
  if constexpr (std::is_floating_point_v<T>)
    return std::fmin(T(a), T(b));
  else
    return T(b) < T(a) ? T(b) : T(a);
}
template <class A, class B>
inline auto max(A a, B b) {
  using T = std::common_type_t<A, B>;
  if constexpr (std::is_floating_point_v<T>)
    return std::fmax(T(a), T(b));
  else
    return T(a) < T(b) ? T(b) : T(a);
}

// glibc declares some of these names for itself, hence macros. The device's fast versions are a few
// ulp off.
#define __expf expf
#define __exp10f exp10f
#define __logf logf
#define __log2f log2f
#define __log10f log10f
#define __powf powf
#define __sinf sinf
#define __cosf cosf
#define __tanf tanf
#define __sincosf sincosf

inline float rsqrtf(float x) { return 1 / std::sqrt(x); }
inline double rsqrt(double x) { return 1 / std::sqrt(x); }
inline float __fdividef(float a, float b) { return a / b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __frcp_rn(float x) { return 1 / x; }
inline float __fsqrt_rn(float x) { return std::sqrt(x); }
inline float __frsqrt_rn(float x) { return float(1 / std::sqrt(double(x))); }
inline float __fmaf_rn(float a, float b, float c) { return std::fma(a, b, c); }
// Volatile: these are never joined into a fused multiply-add.
inline float __fadd_rn(float a, float b) {
  volatile float r = a + b;
  return r;
}
inline float __fsub_rn(float a, float b) {
  volatile float r = a - b;
  return r;
}
inline float __fmul_rn(float a, float b) {
  volatile float r = a * b;
  return r;
}
inline float __saturatef(float x) { return x > 0 ? (x < 1 ? x : 1.f) : 0.f; }

inline unsigned __float_as_uint(float x) { return std::bit_cast<unsigned>(x); }
inline float __uint_as_float(unsigned x) { return std::bit_cast<float>(x); }
inline int __float_as_int(float x) { return std::bit_cast<int>(x); }
inline float __int_as_float(int x) { return std::bit_cast<float>(x); }
inline long long __double_as_longlong(double x) { return std::bit_cast<long long>(x); }
inline double __longlong_as_double(long long x) { return std::bit_cast<double>(x); }
inline float __int2float_rn(int x) { return float(x); }
inline float __uint2float_rn(unsigned x) { return float(x); }
inline int __float2int_rn(float x) { return int(std::nearbyint(x)); }
inline int __float2int_rz(float x) { return int(x); }
inline int __float2int_rd(float x) { return int(std::floor(x)); }
inline int __float2int_ru(float x) { return int(std::ceil(x)); }

inline int __popc(unsigned x) { return std::popcount(x); }
inline int __popcll(unsigned long long x) { return std::popcount(x); }
inline int __clz(int x) { return std::countl_zero(unsigned(x)); }
inline int __clzll(long long x) { return std::countl_zero(static_cast<unsigned long long>(x)); }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __ffsll(long long x) { return __builtin_ffsll(x); }
inline unsigned __brev(unsigned x) {
  unsigned r = 0;
  for (int i = 0; i < 32; ++i) r |= (x >> i & 1u) << (31 - i);
  return r;
}
inline unsigned __umulhi(unsigned a, unsigned b) { return unsigned((uint64_t(a) * b) >> 32); }
inline int __mulhi(int a, int b) { return int((int64_t(a) * b) >> 32); }
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
  __extension__ using wide = unsigned __int128;
  return static_cast<unsigned long long>((wide(a) * b) >> 64);
}
// Four of the eight bytes of (high, low), chosen by the nibbles of selector.
inline unsigned __byte_perm(unsigned low, unsigned high, unsigned selector) {
  uint64_t both = uint64_t(high) << 32 | low;
  unsigned r = 0;
  for (int i = 0; i < 4; ++i) {
    unsigned nibble = selector >> (4 * i) & 15u, byte = unsigned(both >> (8 * (nibble & 7u)) & 0xffu);
    if (nibble & 8u) byte = byte & 0x80u ? 0xffu : 0;
    r |= byte << (8 * i);
  }
  return r;
}
inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned n) {
  return unsigned((uint64_t(high) << 32 | low) << (n & 31u) >> 32);
}
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned n) {
  return unsigned((uint64_t(high) << 32 | low) >> (n & 31u));
}
