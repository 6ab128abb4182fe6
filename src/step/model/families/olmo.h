// Shared by OLMo 2 and 3.
#pragma once
#include "model/families/decoder.h"

namespace crest {

// Everything except rotation and windows.
ModelConfig read_olmo(const Keys& keys);
bool write_olmo(const ModelConfig& config, nlohmann::ordered_json& out);
extern const TensorNames olmo_names;

}  // namespace crest
