#include "compare/attribution.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace crest {

namespace {

ChangeSet all_of(size_t changes) { return (ChangeSet(1) << changes) - 1; }

// Weight of a set of `size` changes in a Shapley value: size! (n - size - 1)! / n!.
double weight(int size, size_t changes) {
  double w = 1.0 / double(changes);
  for (int k = 1; k <= size; ++k) w *= double(k) / double(changes - size_t(k));
  return w;
}

// A weighted sum of measured times, and its error.
struct Sum {
  double value = 0, squares = 0;
  void add(double coefficient, const SetTime& t) {
    value += coefficient * t.time;
    squares += coefficient * t.error * coefficient * t.error;
  }
  double error() const { return std::sqrt(squares); }
};

}  // namespace

const char* name(AttributionMethod method) {
  switch (method) {
    case AttributionMethod::shapley: return "shapley";
    case AttributionMethod::first_and_last: return "first_and_last";
    case AttributionMethod::work: break;
  }
  return "work";
}

std::vector<ChangeSet> sets_to_measure(size_t changes) {
  std::vector<ChangeSet> sets;
  if (changes < 2 || changes > most_changes) return sets;
  const ChangeSet all = all_of(changes);
  auto add = [&](ChangeSet set) {
    if (set != 0 && set != all && std::find(sets.begin(), sets.end(), set) == sets.end()) sets.push_back(set);
  };
  for (size_t i = 0; i < changes; ++i) add(ChangeSet(1) << i);
  for (size_t i = 0; i < changes; ++i) add(all & ~(ChangeSet(1) << i));
  if (changes <= most_shapley_changes)
    for (ChangeSet set = 0; set < all; ++set) add(set);
  return sets;
}

ChangeTimes attribute_changes(size_t changes, const std::map<ChangeSet, SetTime>& times) {
  ChangeTimes result;
  if (changes < 1 || changes > most_changes) return result;
  const ChangeSet all = all_of(changes);
  auto known = [&](ChangeSet set) { return times.count(set) > 0; };
  bool ends = known(0) && known(all), every = ends && changes <= most_shapley_changes;
  for (size_t i = 0; i < changes; ++i) ends = ends && known(ChangeSet(1) << i) && known(all & ~(ChangeSet(1) << i));
  for (ChangeSet set = 0; every && set <= all; ++set) every = known(set);
  if (!ends) return result;
  result.method = every ? AttributionMethod::shapley : AttributionMethod::first_and_last;
  Sum interaction;
  interaction.add(1, times.at(all)), interaction.add(double(changes) - 1, times.at(0));
  result.unshared = times.at(all).time - times.at(0).time;
  for (size_t i = 0; i < changes; ++i) {
    const ChangeSet one = ChangeSet(1) << i;
    ChangeTime change;
    change.alone = times.at(one).time - times.at(0).time;
    change.last = times.at(all).time - times.at(all & ~one).time;
    interaction.add(-1, times.at(one));
    Sum share;
    for (auto& [set, time] : times) {
      const int others = std::popcount(set & ~one);
      const bool end = others == 0 || others == int(changes) - 1;
      double w = every ? weight(others, changes) : !end ? 0 : changes == 1 ? 1 : 0.5;
      share.add(set & one ? w : -w, time);
    }
    change.share = share.value, change.error = share.error();
    result.unshared -= change.share;
    result.changes.push_back(change);
  }
  if (every) result.unshared = 0;  // except for rounding
  result.interaction = interaction.value, result.interaction_error = interaction.error();
  for (size_t i = 0; every && i < changes; ++i)
    for (size_t j = i + 1; j < changes; ++j) {
      const ChangeSet x = ChangeSet(1) << i, y = ChangeSet(1) << j;
      double together = 0;
      for (ChangeSet set = 0; set <= all; ++set)
        if (!(set & (x | y)))
          together += weight(std::popcount(set), changes - 1) * (times.at(set | x | y).time - times.at(set | x).time -
                                                                 times.at(set | y).time + times.at(set).time);
      if (result.strongest.first == result.strongest.second ||
          std::abs(together) > std::abs(result.strongest_interaction))
        result.strongest = {i, j}, result.strongest_interaction = together;
    }
  return result;
}

}  // namespace crest
