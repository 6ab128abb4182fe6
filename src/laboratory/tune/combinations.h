// The variations of a search: lists of values, and their combinations.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "tune/tune.h"

namespace crest {

// The only list that is varied: pins of one value are joined by "+", as in
// "attention=*.tile64+attention_grad=*.tile64".
inline constexpr const char* varied_kernels = "kernel";
// A value of a TuneList as given texts of the setting.
std::vector<std::string> texts_of_value(const std::string& setting, const std::string& value);

// A combination of values, before the choice of a batch.
struct TuneCombination {
  std::vector<std::pair<std::string, std::string>> changes;  // from the start: setting, value
  Recipe given;                                              // not resolved
};

// Every combination of the lists. Merges combinations with two names for one value (auto, and its
// meaning). not_allowed: gets the number of combinations excluded by settings.
std::vector<TuneCombination> combinations_of(const std::vector<TuneList>& lists, const Recipe& start,
                                             const Device& device, size_t& not_allowed);

// The value of a change; "" if the combination does not change the setting.
std::string changed_to(const TuneCombination& combination, const std::string& setting);
// The combination without changes of these settings. Its recipe stays.
TuneCombination without_changes(TuneCombination combination, const std::vector<std::string>& settings);
TuneCombination with_change(TuneCombination combination, const std::string& setting, const std::string& value);

}  // namespace crest
