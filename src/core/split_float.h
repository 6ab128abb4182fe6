// An f32 number as two halves of 16 bits, without losing a bit: the bf16 number nearest to it (of two equally near ones
// that of the larger magnitude, so that the halves tell which it was) and the low half of its bits. Beside a weight in
// bf16 the fp32 master takes 2 bytes instead of 4. NaN stays NaN. Usable from device code.
//
// The upper half is the weight of every fp32 master, in halves or whole (weight_bits): updates, restoring and sessions
// without masters round alike, so a continued run has the bits of the run in one piece.
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
// The weight in bf16 of a master.
CREST_BOTH inline uint16_t weight_bits(uint32_t master_bits) { return split_bits(master_bits).high; }
// A low half of 0x8000 and more: the high one was rounded up.
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
