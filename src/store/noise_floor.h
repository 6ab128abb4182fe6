// What differences between measurements of a recipe mean nothing, as earlier measurements against itself found.
#pragma once
#include <optional>
#include <string>

#include "store/store.h"

namespace crest {

struct NoiseFloor {
  double relative = 0;  // 0.01: differences below 1% are noise
  int64_t run = 0;      // of the store
  std::string when;     // UTC, its start
};

// Of the newest run with this key on this device (its name) that measured one: --noise, --ab or --peer.
std::optional<NoiseFloor> noise_floor_of(const Store& store, const std::string& key, const std::string& device);

}  // namespace crest
