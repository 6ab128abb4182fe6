// The 8-bit numbers of block-wise quantized optimizer state: dynamic tree quantization (Dettmers
// 2016; Dettmers et al. 2022, section 1.3). The position of a code's leading one is the decimal
// exponent. The bits behind it divide a decade into equal parts: code 2^i + f means 10^(i - top)
// (0.1 + 0.9 (f + 1/2) / 2^i), the middle of part f of 2^i.
//   signed (first moment):     bit 7 is the sign, top = 6, 0 is 0 and 0x80 (which would be -0) is 1
//   unsigned (second moment):  top = 7, 0 is 0 and 1 is 1
// Both sets of 256 numbers are from bitsandbytes. Code 0 is 0, so zeroed memory means zero.
#pragma once
#include <cstdint>

#include "core/host_device.h"

namespace crest {

CREST_BOTH constexpr double dynamic_power(int exponent) {  // 10^exponent, -7 <= exponent <= 0
  double p = 1;
  for (; exponent < 0; ++exponent) p /= 10;
  return p;
}

CREST_BOTH constexpr double dynamic_value(uint8_t code, bool is_signed) {
  if (code == 0) return 0;
  if (code == (is_signed ? 0x80 : 1)) return 1;
  int magnitude = is_signed ? code & 0x7f : code, i = 0;
  while (magnitude >> (i + 1)) ++i;
  double part = (magnitude - (1 << i) + 0.5) / (1 << i);
  double value = dynamic_power(i - (is_signed ? 6 : 7)) * (0.1 + 0.9 * part);
  return is_signed && (code & 0x80) ? -value : value;
}

// How a magnitude y in [0, 1] finds its nearest code: the last decade i with `from` at most y
// contains it, as part min((y - low) * scale, parts - 1). Below the first `from`, 0 is nearest;
// from `one` on, 1 is.
struct DynamicDecades {
  int count = 0;
  float from[8] = {}, low[8] = {}, scale[8] = {};
  float one = 0;
};

constexpr DynamicDecades dynamic_decades(bool is_signed) {
  DynamicDecades d;
  int top = is_signed ? 6 : 7, first = is_signed ? 0 : 1;  // unsigned: code 1 is 1, so decades start with code 2
  double before = 0;                                       // the largest number below the decade
  for (int i = first; i <= top; ++i) {
    double power = dynamic_power(i - top), part = 0.9 * power / (1 << i);
    double smallest = 0.1 * power + part / 2;
    d.from[d.count] = float((before + smallest) / 2);
    d.low[d.count] = float(0.1 * power);
    d.scale[d.count] = float(1 / part);
    before = power - part / 2;
    ++d.count;
  }
  d.one = float((before + 1) / 2);
  return d;
}

}  // namespace crest
