// Ranks on machines with other memory or other processors would choose other defaults: all take
// rank 0's.
#pragma once
#include <functional>
#include <string>

#include "model/recipe.h"

namespace crest {

class RankGroup;

// Rank 0 sends its choices, since other ranks might choose differently.
std::string chosen_defaults(const Recipe& chosen);
// Takes rank 0's values where this rank was given none.
Recipe take_defaults(Recipe given, const std::string& of_first);

// All ranks of a group call it together; without a group it is choose(given).
Recipe with_defaults_of_first(RankGroup* group, const Recipe& given,
                              const std::function<Recipe(const Recipe&)>& choose);

}  // namespace crest
