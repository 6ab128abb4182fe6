// Stochastic rounding of f32 to bf16: up with the probability that the dropped bits are of one unit, so the mean of
// many roundings is the number itself. Usable from device code.
#pragma once
#include <bit>
#include <cstdint>

#include "core/dtype.h"
#include "core/host_device.h"
#include "core/random.h"

namespace crest {

// `word`: its low 16 bits are the random number. NaN and infinity stay as they are.
CREST_BOTH inline uint16_t round_bits_stochastically(uint32_t f32_bits, uint32_t word) {
  if ((f32_bits & 0x7f800000u) == 0x7f800000u)
    return uint16_t((f32_bits >> 16) | ((f32_bits & 0x7fffffu) ? 0x40u : 0u));
  return uint16_t((f32_bits + (word & 0xffffu)) >> 16);
}
inline bfloat16 round_stochastically(float x, uint32_t word) {
  return {round_bits_stochastically(std::bit_cast<uint32_t>(x), word)};
}

// One word an element serves the parameter (low half) and two states (high half, and the bits between). The halves of
// the two states share bits: each rounding is unbiased by itself, which is all that is asked of it.
CREST_BOTH inline uint32_t state_word(uint32_t word, int state) { return word >> (state == 0 ? 16 : 8); }

// Stream of one step and one group of tensors.
CREST_BOTH inline uint64_t update_stream(int64_t adam_step, int64_t rng_id) {
  return mix(mix(uint64_t(adam_step)) ^ uint64_t(rng_id));
}

}  // namespace crest
