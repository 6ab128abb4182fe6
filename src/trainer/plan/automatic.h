// The choices of `auto` for settings that follow from others of the recipe.
#pragma once
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "model/recipe.h"

namespace crest {

std::string auto_recompute(const std::string& fusion);
std::string auto_loss_chunk(const std::string& precision, int64_t vocab, const std::string& device_kind);

// Whether the update goes over whole groups of parameters, so ranks can have shards.
bool may_shard(const Recipe& recipe);
// The recipe's possible values of --shard besides none.
std::vector<std::string> shard_levels(const Recipe& recipe);
// Whether ranks on GPUs share the optimizer's state where nothing else is requested.
bool auto_shard(const Recipe& recipe, const std::string& device_kind);

// Keys of a resolved recipe whose value is `auto`'s choice from its other settings: they carry no
// information of their own.
std::vector<std::string> automatic_settings(const nlohmann::ordered_json& recipe, const nlohmann::ordered_json& device);

}  // namespace crest
