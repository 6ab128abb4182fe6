// How fast a CPU multiplies matrices in each precision: --precision auto takes the faster one. Dot
// products of bf16 alone (Cooper Lake, Zen 4) may be slower than fp32, matrix units never are.
#pragma once
#include <optional>
#include <string>

#include "backend/backend.h"

namespace crest {

// FLOP/s of the three products of a linear layer's training step.
struct MatmulRates {
  double fp32 = 0, bf16 = 0;
};

// Stops after 0.1 s or 8 rounds, with both taking turns, and takes the best of each.
MatmulRates measure_matmul_rates(int threads);

// The rates of this processor in the class of the device: measured once, then read from a file in
// the cache folder. None without hardware for bf16, or where the class is not this processor's and
// the file has no rates for it.
std::optional<MatmulRates> matmul_rates(const Device& device);
// The name of the file, "" without a cache folder, and the key of a device in it.
std::string matmul_rates_path();
std::string matmul_rates_key(const Device& device);

}  // namespace crest
