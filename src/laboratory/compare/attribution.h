// What each of several changes contributes to a difference in step time, from measured steps with
// some of the changes.
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

namespace crest {

using ChangeSet = uint32_t;  // bit i: change i is made

// Up to this many changes every subset is measured; up to most_changes, each change alone and all
// but each.
inline constexpr size_t most_shapley_changes = 4, most_changes = 12;

// The sets to measure besides none and all: each change alone, all but each, then the others that
// exact Shapley values need.
std::vector<ChangeSet> sets_to_measure(size_t changes);

struct SetTime {
  double time = 0, error = 0;  // half a 95% interval, in the unit of time
};

enum class AttributionMethod : uint8_t {
  work,            // not measured: by the instructions that a change can act on
  shapley,         // mean over all orders of making the changes (Shapley 1953)
  first_and_last,  // mean of making the change first and making it last
};
const char* name(AttributionMethod method);  // "shapley": JSON

// Times in the unit of SetTime; negative: less time.
struct ChangeTime {
  double share = 0, error = 0;  // what the change is given, and half a 95% interval
  double alone = 0, last = 0;   // made as the only change, and on top of all others
};

struct ChangeTimes {
  AttributionMethod method = AttributionMethod::work;  // work: too little was measured, the rest is empty
  std::vector<ChangeTime> changes;
  // The difference less all shares. 0 for Shapley values, which split it among the changes.
  double unshared = 0;
  // The difference less what each change makes alone, and half a 95% interval.
  double interaction = 0, interaction_error = 0;
  // The two changes that change each other's effect most, by the mean over the sets of the other
  // changes (the Shapley interaction index of Grabisch and Roubens 1999), which is the same for
  // swapped sides. Twice the same change: unknown.
  std::pair<size_t, size_t> strongest{0, 0};
  double strongest_interaction = 0;
};

// `times` has the empty set and the full one. Swapping the sides (each set for the changes that it
// lacks) changes the signs of all shares, and swaps alone and last.
ChangeTimes attribute_changes(size_t changes, const std::map<ChangeSet, SetTime>& times);

}  // namespace crest
