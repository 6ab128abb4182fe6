#include "tune/finalists.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <new>
#include <tuple>

#include "bench/phase_runner.h"
#include "core/error.h"

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
  std::vector<size_t> list;  // smaller batches, then the best
  for (size_t i : from)
    if (at(i).recipe.batch < best.recipe.batch && others(at(i)) == others(best)) list.push_back(i);
  std::sort(list.begin(), list.end(), [&](size_t a, size_t b) { return at(a).recipe.batch < at(b).recipe.batch; });
  list.push_back(r.best);
  // Compares each batch with at least its double, up to the best. If the search skipped a doubling,
  // it uses the mean gain of the doublings in between.
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
  while (!suffices(first)) ++first;  // ends at the best
  return list[first];
}

size_t cheapest_of_fastest(const TuneResult& r, const std::vector<size_t>& from, bool by_memory) {
  double fastest = 0;
  for (size_t i : from) fastest = std::max(fastest, r.candidates[i].rate());
  auto cost = [&](size_t i) {
    const TuneCandidate& c = r.candidates[i];
    return std::tuple(by_memory ? c.planned_bytes : 0, c.changes.size(), -c.rate());
  };
  size_t best = TuneResult::none;
  for (size_t i : from) {
    if (r.candidates[i].rate() * (1 + r.tolerance) < fastest) continue;
    if (best == TuneResult::none || cost(i) < cost(best)) best = i;
  }
  return best;
}

double equal_tokens(const TuneResult& r, const std::vector<size_t>& list, size_t candidate) {
  auto tokens = [&](size_t k) { return double(r.candidates[k].recipe.tokens_per_step()); };
  return tokens(list[0]) / tokens(candidate);
}

AbResult RoundsOfFinalists::in_processes(const std::vector<size_t>& list, const ProcessRuns& runs) const {
  constexpr int steps_of_a_round = 6;
  std::vector<Contender> contenders;
  for (size_t i : list)
    contenders.push_back({change_text(result.candidates[i]), [&, i] {
                            options.check_interrupt();
                            double ms =
                                runs.step_ms(result.candidates[i].recipe, options.max_seconds, steps_of_a_round);
                            return ms / 1e3 * equal_tokens(result, list, i);
                          }});
  return compare_interleaved(
      contenders, {.warmup_rounds = 0, .min_rounds = 6, .max_rounds = 6, .max_seconds = seconds, .apart = true});
}

std::optional<AbResult> RoundsOfFinalists::here(std::vector<size_t>& list) const {
  std::vector<std::unique_ptr<PhaseRunner>> runners;
  std::vector<Contender> contenders;
  std::vector<size_t> built;
  for (size_t i : list) {
    const Recipe& recipe = result.candidates[i].recipe;
    try {
      runners.push_back(std::make_unique<PhaseRunner>(compile_phase(recipe, device, BenchPhase::step), BenchPhase::step,
                                                      options.seed));
    } catch (const std::bad_alloc&) {  // together they need more memory than is left
      continue;
    } catch (const Error& e) {
      if (e.code() != Exit::does_not_fit) throw;
      continue;
    }
    built.push_back(i);
  }
  if (built.size() < 2) return {};
  list = built;
  for (size_t k = 0; k < list.size(); ++k)
    contenders.push_back({change_text(result.candidates[list[k]]), [&, runner = runners[k].get(), i = list[k]] {
                            options.check_interrupt();
                            return runner->run() * equal_tokens(result, list, i);
                          }});
  return compare_interleaved(contenders, {.warmup_rounds = 2,
                                          .min_rounds = 10,
                                          .max_rounds = 40,
                                          .max_seconds = std::min(8 * options.max_seconds, seconds)});
}

}  // namespace crest
