// The meaning of `auto` in settings derived from the recipe's other settings.
#pragma once
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "model/recipe.h"

namespace crest {

std::string auto_recompute(const std::string& fusion);
std::string auto_loss_chunk(const std::string& precision, int64_t vocab, const std::string& device_kind);

// Whether the update works on whole parameter groups, so ranks can have shards.
bool may_shard(const Recipe& recipe);
// The recipe's possible values of --shard besides none.
std::vector<std::string> shard_levels(const Recipe& recipe);
// Whether ranks on GPUs shard the optimizer state by default.
bool auto_shard(const Recipe& recipe, const std::string& device_kind);
// Whether --fp8-weights has the value that `auto` takes where memory does not matter.
bool has_usual_fp8_weights(const Recipe& recipe);
// Whether tensor ranks on GPUs multiply rows while others travel (--tensor-overlap) by default.
bool auto_tensor_overlap(const Recipe& recipe, const std::string& device_kind);

// Keys of a resolved recipe with the value `auto` would choose from the other settings. They carry
// no information.
std::vector<std::string> automatic_settings(const nlohmann::ordered_json& recipe, const nlohmann::ordered_json& device);

}  // namespace crest
