// Splits an f32 number into two 16-bit halves without losing a bit: the nearest bf16 number (of two
// equally near ones the larger magnitude, so the halves determine it), and the low half of its
// bits. Next to a bf16 weight, the fp32 master takes 2 bytes instead of 4. NaN stays NaN. Works in
// device code.
//
// The upper half is the weight of every fp32 master, split or whole (weight_bits): updates,
// restoring and sessions without masters round alike, so a continued run is bitwise identical to an
// uninterrupted one.
#pragma once
#include <bit>
#include <cstdint>

#include "core/dtype.h"
#include "core/host_device.h"

namespace crest {

struct SplitBits {
  uint16_t high;  // the bits of the bf16 number
  uint16_t low;
};

CREST_BOTH inline SplitBits split_bits(uint32_t f32_bits) {
  if ((f32_bits & 0x7fffffffu) > 0x7f800000u) return {uint16_t((f32_bits >> 16) | 0x40u), 0};
  return {uint16_t((f32_bits + 0x8000u) >> 16), uint16_t(f32_bits)};
}
// The bf16 weight of a master.
CREST_BOTH inline uint16_t weight_bits(uint32_t master_bits) { return split_bits(master_bits).high; }
// If the low half is 0x8000 or more, the high half was rounded up.
CREST_BOTH inline uint32_t join_bits(uint16_t high, uint16_t low) {
  return (uint32_t(high) << 16) + ((uint32_t(low) ^ 0x8000u) - 0x8000u);
}

struct SplitFloat {
  bfloat16 high;
  uint16_t low;
};
inline SplitFloat split(float x) {
  SplitBits s = split_bits(std::bit_cast<uint32_t>(x));
  return {{s.high}, s.low};
}
inline float join(bfloat16 high, uint16_t low) { return std::bit_cast<float>(join_bits(high.bits, low)); }

}  // namespace crest
