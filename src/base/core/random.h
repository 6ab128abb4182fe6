// Counter-based random numbers: Philox4x32-10 (Salmon et al., "Parallel Random Numbers: As Easy as
// 1, 2, 3", SC 2011). A number is a pure function of its coordinates, so masks and initial weights
// do not depend on batch split, fusion, recompute, thread count or world size. Everything here
// works in device code (plain integer arithmetic).
#pragma once
#include <cmath>
#include <cstdint>

#include "core/host_device.h"

namespace crest {

struct Random4 {
  uint32_t x[4];
};

CREST_BOTH inline Random4 philox(uint64_t key, uint64_t high, uint64_t low) {
  uint32_t c[4] = {uint32_t(low), uint32_t(low >> 32), uint32_t(high), uint32_t(high >> 32)};
  uint32_t k0 = uint32_t(key), k1 = uint32_t(key >> 32);
  for (int round = 0; round < 10; ++round) {
    uint64_t p0 = uint64_t(0xD2511F53u) * c[0], p1 = uint64_t(0xCD9E8D57u) * c[2];
    uint32_t n0 = uint32_t(p1 >> 32) ^ c[1] ^ k0, n2 = uint32_t(p0 >> 32) ^ c[3] ^ k1;
    c[1] = uint32_t(p1), c[3] = uint32_t(p0), c[0] = n0, c[2] = n2;
    k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;
  }
  return {{c[0], c[1], c[2], c[3]}};
}

// SplitMix64 finalizer (Steele et al. 2014): mixes coordinates into a key.
CREST_BOTH_INLINE uint64_t mix(uint64_t x) {
  x += 0x9E3779B97F4A7C15ull;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  return x ^ (x >> 31);
}

// Uniform in [0, 1) with 24 bits.
CREST_BOTH inline float uniform(uint32_t bits) { return float(bits >> 8) * 0x1p-24f; }

// One random word for (seed, stream, element): the single-element form of the vector kernels' four
// at a time (block = element / 4, lane = element % 4).
CREST_BOTH inline uint32_t random_bits(uint64_t seed, uint64_t stream, uint64_t element) {
  return philox(seed, stream, element >> 2).x[element & 3];
}

// Standard normal (Box-Muller) for (seed, stream, element).
inline double normal(uint64_t seed, uint64_t stream, uint64_t element) {
  Random4 r = philox(seed, stream, element);
  double u1 = (r.x[0] + 0.5) * 0x1p-32, u2 = (r.x[1] + 0.5) * 0x1p-32;
  return std::sqrt(-2 * std::log(u1)) * std::cos(6.283185307179586 * u2);
}

// The dropout stream of one sample: a function of the global sample number and the model's rng_id
// (never of the batch).
CREST_BOTH_INLINE uint64_t dropout_stream(uint64_t global_sample, uint32_t rng_id) {
  return mix(global_sample) ^ rng_id;
}

}  // namespace crest
