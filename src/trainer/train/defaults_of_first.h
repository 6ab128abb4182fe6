// Ranks with other memory or processors would choose other defaults, so all use rank 0's.
#pragma once
#include <functional>
#include <string>

#include "model/recipe.h"

namespace crest {

class RankGroup;

// Rank 0's choices, to be sent to the others.
std::string chosen_defaults(const Recipe& chosen);
// Uses rank 0's values for settings not given to this rank.
Recipe take_defaults(Recipe given, const std::string& of_first);

// All ranks of a group call it together. Without a group: choose(given).
Recipe with_defaults_of_first(RankGroup* group, const Recipe& given,
                              const std::function<Recipe(const Recipe&)>& choose);

}  // namespace crest
