// Stochastic rounding of f32 to bf16: the probability of rounding up is the dropped fraction of a
// unit, so the mean of many roundings is the number itself. Works in device code.
#pragma once
#include <bit>
#include <cstdint>

#include "core/dtype.h"
#include "core/host_device.h"
#include "core/random.h"

namespace crest {

// `word`: its low 16 bits are the random number. NaN and infinity are unchanged.
CREST_BOTH inline uint16_t round_bits_stochastically(uint32_t f32_bits, uint32_t word) {
  if ((f32_bits & 0x7f800000u) == 0x7f800000u)
    return uint16_t((f32_bits >> 16) | ((f32_bits & 0x7fffffu) ? 0x40u : 0u));
  return uint16_t((f32_bits + (word & 0xffffu)) >> 16);
}
inline bfloat16 round_stochastically(float x, uint32_t word) {
  return {round_bits_stochastically(std::bit_cast<uint32_t>(x), word)};
}

// One word per element serves the parameter (low half) and two states (high half, and the middle
// bits). The bits of the two states overlap: each rounding needs to be unbiased only by itself.
CREST_BOTH inline uint32_t state_word(uint32_t word, int state) { return word >> (state == 0 ? 16 : 8); }

// The stream of one step and one group of tensors.
CREST_BOTH inline uint64_t update_stream(int64_t adam_step, int64_t rng_id) {
  return mix(mix(uint64_t(adam_step)) ^ uint64_t(rng_id));
}

}  // namespace crest
