// Moments of an optimizer as e4m3 codes (core/float8.h), in blocks with an f32 scale, the block's
// largest magnitude. A code's number q (at most 448) stands for
//   first moment:   q / 448 times the scale
//   second moment:  (q / 448)^2 times the scale
// A code of the second moment holds its square root, the divisor of a step, so both have the same
// range: the smallest number is 2^-17.8 of the largest. A nonzero second moment has the smallest
// code at least, or a step would be too long by orders of magnitude. A block with its largest
// magnitude below `float8_moment_least` becomes zero. Code 0 is 0, so fresh zeroed state means
// zero.
#pragma once
#include <cstdint>

#include "core/host_device.h"

namespace crest {

inline constexpr float float8_moment_largest = 448;  // a code's largest number
inline constexpr float float8_moment_least = 0x1p-100f;

// The number of a code; NaN, 0x7f with either sign, is never stored. constexpr: for tables.
constexpr float float8_moment_number(uint8_t code) {
  int exponent = (code >> 3) & 15, mantissa = code & 7;
  float x = exponent ? float(8 + mantissa) / 8 : float(mantissa) / 8;
  for (int e = exponent ? exponent : 1; e < 7; ++e) x /= 2;
  for (int e = 7; e < exponent; ++e) x *= 2;
  return code & 0x80 ? -x : x;
}

}  // namespace crest
