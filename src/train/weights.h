// Weights between files and a session: whatever a file calls and how it lays out its tensors, parameters are Crest's.
#pragma once
#include <string>
#include <vector>

#include "model/config.h"
#include "run/parameters.h"
#include "train/safetensors.h"

namespace crest {

// Loads the weights of a Hugging Face or Crest folder, a .safetensors file or a sharded index (`path`) into a session.
// Names, shapes and dtypes of all tensors are checked before the first is read. Throws with what differs and what would
// fit; a tied model whose file has another output head is refused.
void load_weights(const std::string& path, const ModelConfig& config, const std::vector<ParameterRef>& parameters);

// Canonical fp32 tensors in memory that they own.
struct CanonicalTensors {
  std::vector<TensorSource> tensors;  // point into storage
  std::vector<std::vector<float>> storage;
};
// The weights (fp32 truth) as checkpoints and transformers name them.
CanonicalTensors export_weights(const ModelConfig& config, const std::vector<ParameterRef>& parameters);

}  // namespace crest
