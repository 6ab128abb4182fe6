// Values of --recompute: the recomputed operations of each layer.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace crest {

// Levels of recompute, from nothing to everything: none, activation, pointwise, selective, full.
extern const std::vector<std::string> recompute_levels;

// Each layer's level for --recompute LEVEL or --recompute layers=LEVEL:N+LEVEL:N+LEVEL, with runs
// of layers in order. A last level without a number takes all remaining layers. Throws a usage
// error if the layers do not add up.
std::vector<std::string> recompute_by_layer(std::string_view value, int64_t layers);
// The shortest value for these levels.
std::string recompute_value(const std::vector<std::string>& by_layer);

// SIZE in budget=SIZE; empty for other values.
std::string_view recompute_budget(std::string_view value);
// The error in a value of --recompute; "": none.
std::string wrong_recompute(std::string_view value);

}  // namespace crest
