// Values of --recompute: the recomputed operations of each layer.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace crest {

// Levels of recompute, from nothing to everything: none, activation, pointwise, selective, full.
extern const std::vector<std::string> recompute_levels;

// The level of each layer for a value of --recompute other than auto and budget=SIZE: a level, or
// layers=LEVEL:N+LEVEL:N+LEVEL with the layers in order. A last level without a number is for all
// remaining layers. Throws a usage error if the value is for another number of layers.
std::vector<std::string> recompute_by_layer(std::string_view value, int64_t layers);
// The shortest value with these levels.
std::string recompute_value(const std::vector<std::string>& by_layer);

// The SIZE of budget=SIZE; empty for other values.
std::string_view recompute_budget(std::string_view value);
// The error in a value of --recompute; "" if there is none.
std::string wrong_recompute(std::string_view value);

}  // namespace crest
