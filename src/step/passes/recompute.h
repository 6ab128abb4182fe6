// Values of --recompute that say what each layer repeats.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace crest {

// What a layer repeats, from nothing to everything: none, activation, pointwise, selective, full.
extern const std::vector<std::string> recompute_levels;

// The level of each layer for a value of --recompute other than auto and budget=SIZE: a level, or
// layers=LEVEL:N+LEVEL:N+LEVEL with the layers in order; the last level may go without a number and
// is that of all layers that remain. Throws a usage error where it is for another number of layers.
std::vector<std::string> recompute_by_layer(std::string_view value, int64_t layers);
// The shortest value for which recompute_by_layer returns these levels.
std::string recompute_value(const std::vector<std::string>& by_layer);

// The SIZE of budget=SIZE; empty for other values.
std::string_view recompute_budget(std::string_view value);
// What is wrong with a value of --recompute; "" if nothing is.
std::string wrong_recompute(std::string_view value);

}  // namespace crest
