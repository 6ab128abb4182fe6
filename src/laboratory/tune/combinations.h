// The variations of a search: lists of values, and their combinations.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "tune/tune.h"

namespace crest {

// A combination of values, before the choice of a batch.
struct TuneCombination {
  std::vector<std::pair<std::string, std::string>> changes;  // from the start: setting, value
  Recipe given;                                              // not resolved
};

// Every combination of the lists. Merges combinations with two names for one value (auto, and its
// meaning). not_allowed: gets the number of combinations excluded by settings.
std::vector<TuneCombination> combinations_of(const std::vector<TuneList>& lists, const Recipe& start,
                                             const Device& device, size_t& not_allowed);

}  // namespace crest
