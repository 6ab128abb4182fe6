// --fp8-weights auto of a step with several micro steps. 8-bit weights kept from the first micro
// step on (keep) take two bytes a weight. Making them again in each half of each micro step (again)
// saves this memory and reads more.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "plan/compile.h"

namespace crest {

// The recipe with each possible default, faster ones first; the recipe itself if there is nothing
// to choose.
std::vector<Recipe> fp8_weights_choices(const Recipe& recipe);

// The first of them with a plan of at most `limit` bytes for one rank; the smallest if none fits.
// note: receives a line if this is not the first; may be empty.
Recipe fp8_weights_within(const Recipe& recipe, const Device& device, int64_t limit, const SessionUse& use,
                          const std::function<void(const std::string&)>& note);

}  // namespace crest
