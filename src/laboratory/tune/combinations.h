// What a search varies: lists of values, and their combinations.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "tune/tune.h"

namespace crest {

// A combination of values before the batch is chosen.
struct TuneCombination {
  std::vector<std::pair<std::string, std::string>> changes;  // from the start: setting, value
  Recipe given;                                              // not resolved
};

// Every combination of the lists; those that differ from the start only in how a value is written
// (auto, and what it stands for) are one. not_allowed: gets the number of those that settings
// exclude.
std::vector<TuneCombination> combinations_of(const std::vector<TuneList>& lists, const Recipe& start,
                                             const Device& device, size_t& not_allowed);

}  // namespace crest
