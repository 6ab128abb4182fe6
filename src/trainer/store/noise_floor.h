// The noise floor of a recipe, from an earlier measurement against itself.
#pragma once
#include <optional>
#include <string>

#include "store/store.h"

namespace crest {

struct NoiseFloor {
  double relative = 0;  // 0.01: differences below 1% are noise
  int64_t run = 0;      // id in the store
  std::string when;     // start of the run, UTC
};

// From the newest run with this key on this device (by name) and a measured one: --noise, --ab or
// --peer.
std::optional<NoiseFloor> noise_floor_of(const Store& store, const std::string& key, const std::string& device);

}  // namespace crest
