#include "tune/finalists.h"

#include <algorithm>
#include <cmath>

namespace crest {

std::vector<size_t> finalists(const TuneResult& r, double within, size_t most, int64_t together) {
  std::vector<size_t> order;
  for (size_t i = 0; i < r.candidates.size(); ++i)
    if (r.candidates[i].measured_ms) order.push_back(i);
  std::sort(order.begin(), order.end(),
            [&](size_t a, size_t b) { return r.candidates[a].rate() > r.candidates[b].rate(); });
  std::vector<size_t> list;
  if (r.start != TuneResult::none && r.candidates[r.start].measured_ms) list.push_back(r.start);
  int64_t bytes = list.empty() ? 0 : r.candidates[r.start].step_bytes;
  if (within > 0) {
    auto smallest = order.end();
    for (auto it = order.begin(); it != order.end(); ++it) {
      const TuneCandidate& c = r.candidates[*it];
      if (c.rate() * (1 + within) >= r.candidates[order[0]].rate() &&
          (smallest == order.end() || c.planned_bytes < r.candidates[*smallest].planned_bytes))
        smallest = it;
    }
    if (smallest - order.begin() > 1) std::rotate(order.begin() + 1, smallest, smallest + 1);
  }
  for (size_t i : order) {
    if (list.size() == most) break;
    if (i == r.start || r.candidates[i].step_bytes > together - bytes) continue;
    list.push_back(i), bytes += r.candidates[i].step_bytes;
  }
  return list;
}

size_t least_batch(const TuneResult& r, const std::vector<size_t>& from, double stop_below) {
  auto others = [](const TuneCandidate& c) {
    auto changes = c.changes;
    std::erase_if(changes, [](auto& change) { return change.first == "batch"; });
    return changes;
  };
  auto at = [&](size_t i) -> const TuneCandidate& { return r.candidates[i]; };
  const TuneCandidate& best = at(r.best);
  std::vector<size_t> list;  // of smaller batches, then the best
  for (size_t i : from)
    if (at(i).recipe.batch < best.recipe.batch && others(at(i)) == others(best)) list.push_back(i);
  std::sort(list.begin(), list.end(), [&](size_t a, size_t b) { return at(a).recipe.batch < at(b).recipe.batch; });
  list.push_back(r.best);
  // From one to twice its batch or more, up to the best: on average of what lies between, where
  // not every doubling was searched.
  auto suffices = [&](size_t first) {
    for (size_t k = first; k + 1 < list.size();) {
      size_t next = k + 1;
      while (next + 1 < list.size() && at(list[next]).recipe.batch < 2 * at(list[k]).recipe.batch) ++next;
      const TuneCandidate &small = at(list[k]), &large = at(list[next]);
      double doublings = std::log2(double(large.recipe.batch) / double(small.recipe.batch));
      if (large.rate() >= small.rate() * std::pow(1 + stop_below, doublings)) return false;
      k = next;
    }
    return true;
  };
  size_t first = 0;
  while (!suffices(first)) ++first;  // the best does
  return list[first];
}

}  // namespace crest
