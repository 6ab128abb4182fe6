// The 8-bit floats of matmuls (OCP OFP8; Micikevicius et al. 2022): e4m3 has a sign, 4 bits of
// exponent and 3 of mantissa, no infinity, and 448 as its largest number; e5m2 has 5 and 2, and
// 57344. Conversions round to nearest even. Magnitudes above the largest, infinity too, become the
// largest (saturation); NaN stays NaN, with its sign. Works in device code.
#pragma once
#include <bit>
#include <cstdint>

#include "core/dtype.h"
#include "core/host_device.h"

namespace crest {

struct float8_e4m3 {
  static constexpr int mantissa = 3, bias = 7;
  static constexpr uint8_t largest = 0x7e;
  static constexpr int largest_exponent = 8;  // both largest numbers are 1.75 times a power of two
  uint8_t bits;
};
struct float8_e5m2 {
  static constexpr int mantissa = 2, bias = 15;
  static constexpr uint8_t largest = 0x7b;
  static constexpr int largest_exponent = 15;
  uint8_t bits;
};

CREST_BOTH inline uint32_t float_bits(float x) {
#ifdef __CUDA_ARCH__
  return __float_as_uint(x);
#else
  return std::bit_cast<uint32_t>(x);
#endif
}
CREST_BOTH inline float bits_float(uint32_t u) {
#ifdef __CUDA_ARCH__
  return __uint_as_float(u);
#else
  return std::bit_cast<float>(u);
#endif
}
// 2^e, for -126 <= e <= 127.
CREST_BOTH inline float power_of_two(int e) { return bits_float(uint32_t(e + 127) << 23); }

template <class F>
CREST_BOTH inline float largest_of() {
  return 1.75f * power_of_two(F::largest_exponent);
}

template <class F>
CREST_BOTH inline F to_float8(float x) {
  constexpr int shift = 23 - F::mantissa;
  uint32_t u = float_bits(x), a = u & 0x7fffffffu;
  auto sign = uint8_t((u >> 24) & 0x80);
  if (a > 0x7f800000u) return {uint8_t(sign | 0x7f)};
  if (a >= float_bits(largest_of<F>())) return {uint8_t(sign | F::largest)};
  if (a < uint32_t(128 - F::bias) << 23) {  // subnormal: adding a large number rounds to its unit
    float magic = power_of_two(23 + 1 - F::bias - F::mantissa);
    return {uint8_t(sign | (float_bits(bits_float(a) + magic) - float_bits(magic)))};
  }
  uint32_t rounded = a + ((1u << (shift - 1)) - 1) + ((a >> shift) & 1);
  return {uint8_t(sign | ((rounded - (uint32_t(127 - F::bias) << 23)) >> shift))};
}

CREST_BOTH inline float to_float(float8_e4m3 x) {
  uint32_t sign = uint32_t(x.bits & 0x80) << 24, exponent = (x.bits >> 3) & 15, mantissa = x.bits & 7;
  if ((x.bits & 0x7f) == 0x7f) return bits_float(sign | 0x7fc00000u);
  float magnitude =
      exponent == 0 ? float(mantissa) * power_of_two(-9) : bits_float(((exponent + 120) << 23) | (mantissa << 20));
  return sign ? -magnitude : magnitude;
}
CREST_BOTH inline float to_float(float8_e5m2 x) {
  uint32_t sign = uint32_t(x.bits & 0x80) << 24, exponent = (x.bits >> 2) & 31, mantissa = x.bits & 3;
  if (exponent == 31) return bits_float(sign | 0x7f800000u | (mantissa << 21));
  float magnitude =
      exponent == 0 ? float(mantissa) * power_of_two(-16) : bits_float(((exponent + 112) << 23) | (mantissa << 21));
  return sign ? -magnitude : magnitude;
}

// The exponent e of a tensor's scale 2^e: the smallest with amax 2^margin <= largest 2^e. Scaling
// by powers of two is exact. So the scale only decides which values saturate or vanish, and the
// last bits of amax do not change it. amax: finite, above 0. Limits keep the product of two scales
// a normal number.
template <class F>
CREST_BOTH inline int scale_exponent(float amax, int margin) {
  uint32_t u = float_bits(amax);
  int e = int(u >> 23) - 127 - F::largest_exponent + ((u & 0x7fffffu) > 0x600000u) + margin;
  return e < -60 ? -60 : e > 60 ? 60 : e;
}

// Whether a scaled number is above the largest of the format.
template <class F>
CREST_BOTH inline bool saturates(float x) {
  return (float_bits(x) & 0x7fffffffu) > float_bits(largest_of<F>()) && x == x;
}
// Whether a nonzero number rounded to zero.
template <class F>
CREST_BOTH inline bool vanishes(float x, F rounded) {
  return (rounded.bits & 0x7f) == 0 && x != 0;
}

// body(a number of the format), t: e4m3 or e5m2.
template <class Body>
void with_float8(DType t, Body body) {
  if (t == DType::e4m3)
    body(float8_e4m3());
  else
    body(float8_e5m2());
}

}  // namespace crest
