// The value of --offload: what is in host memory.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace crest {

// Pieces of the optimizer's state on the device at a time. While one is updated, another arrives
// and a third returns, so both directions of the link stay busy.
inline constexpr int state_buffers = 3;

struct OffloadChoice {
  bool optimizer = false;  // states and fp32 master weights
  // Activations kept for the backward pass: nothing, as much as predicted transfers hide behind
  // computation, or everything in the first `layers` layers.
  enum class Activations { none, hidden, layers } activations = Activations::none;
  int64_t layers = 0;  // of Activations::layers; all_layers: every layer

  static constexpr int64_t all_layers = INT64_MAX;
  bool operator==(const OffloadChoice&) const = default;
};

// "none", "optimizer", "activations", "activations=all", "activations=4", and "optimizer+" before
// the last three. Throws a usage error for other text.
OffloadChoice offload_choice(std::string_view value);
std::string offload_value(const OffloadChoice& choice);

}  // namespace crest
