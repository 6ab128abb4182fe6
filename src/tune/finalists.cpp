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
  const TuneCandidate& best = r.candidates[r.best];
  size_t least = r.best;
  for (size_t i : from) {
    const TuneCandidate& c = r.candidates[i];
    if (c.recipe.batch >= r.candidates[least].recipe.batch || others(c) != others(best)) continue;
    double doublings = std::log2(double(best.recipe.batch) / double(c.recipe.batch));
    if (best.rate() < c.rate() * std::pow(1 + stop_below, doublings)) least = i;
  }
  return least;
}

}  // namespace crest
