// Divides a difference in step time among several changes, from steps measured with some of them.
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

namespace crest {

using ChangeSet = uint32_t;  // bit i: change i is made

// Up to this many changes, every subset is measured. Up to most_changes: each change alone, and all
// changes but one.
inline constexpr size_t most_shapley_changes = 4, most_changes = 12;

// The sets to measure besides none and all: each change alone, all but each, then the remaining
// sets of exact Shapley values.
std::vector<ChangeSet> sets_to_measure(size_t changes);

struct SetTime {
  double time = 0, error = 0;  // half a 95% interval, in the unit of time
};

enum class AttributionMethod : uint8_t {
  work,            // not measured: by the instructions a change can affect
  shapley,         // mean over all orders of making the changes (Shapley 1953)
  first_and_last,  // mean of making the change first and making it last
};
const char* name(AttributionMethod method);  // "shapley": JSON

// Times in the unit of SetTime; negative: less time.
struct ChangeTime {
  double share = 0, error = 0;  // its part of the difference, and half a 95% interval
  double alone = 0, last = 0;   // as the only change, and on top of all others
};

struct ChangeTimes {
  AttributionMethod method = AttributionMethod::work;  // work: too few measurements, the rest is empty
  std::vector<ChangeTime> changes;
  // The difference minus all shares. Shapley values divide all of it, so it is 0.
  double unshared = 0;
  // The difference minus the sum of the single changes, and half a 95% interval.
  double interaction = 0, interaction_error = 0;
  // The two changes with the strongest interaction, as a mean over the sets of the other changes
  // (the Shapley interaction index of Grabisch and Roubens 1999). Swapping the sides gives the same
  // pair. Twice the same change: unknown.
  std::pair<size_t, size_t> strongest{0, 0};
  double strongest_interaction = 0;
};

// `times` contains the empty set and the full set. Swapping the sides (each set becomes its
// complement) flips the signs of all shares, and swaps alone and last.
ChangeTimes attribute_changes(size_t changes, const std::map<ChangeSet, SetTime>& times);

}  // namespace crest
