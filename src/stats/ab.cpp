#include "stats/ab.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/error.h"

namespace crest {

Comparison compare_paired(const Samples& a, const Samples& b, double noise_floor, uint64_t seed) {
  if (a.count() != b.count() || a.empty())
    fail_internal(fmt::format("{} samples against {}", a.count(), b.count()), "comparison");
  if (a.min() <= 0 || b.min() <= 0)
    fail("a run took no time by its own clock", "comparison", "Repeat the work until a run takes a millisecond.");
  Comparison c;
  c.ratio = b.median() / a.median();
  c.ratio_interval = ratio_interval(a.values(), b.values(), true, seed);
  c.verdict = verdict_of(c.ratio, c.ratio_interval, noise_floor);
  return c;
}

static void evaluate(AbResult& result, const std::vector<Contender>& contenders, uint64_t seed) {
  result.noise_floor = floor_of(compare_paired(result.samples[0], result.again, 0, seed).ratio_interval);
  result.comparisons.clear();
  for (size_t i = 1; i < contenders.size(); ++i) {
    Comparison c = compare_paired(result.samples[0], result.samples[i], result.noise_floor, seed + i);
    c.a = contenders[0].name, c.b = contenders[i].name;
    result.comparisons.push_back(std::move(c));
  }
}

static bool known_well(const AbResult& result, double target) {
  if (target <= 0) return false;
  for (auto& c : result.comparisons)
    if (std::log(c.ratio_interval.high / c.ratio_interval.low) / 2 > std::log1p(target)) return false;
  return true;
}

AbResult compare_interleaved(const std::vector<Contender>& contenders, const AbRule& rule) {
  if (contenders.size() < 2) fail_usage("a comparison needs at least two contenders", "comparison");
  if (rule.warmup_rounds < 0 || rule.min_rounds < 2 || rule.max_rounds < rule.min_rounds)
    fail_usage(fmt::format("at least {} and at most {} rounds contradict each other", rule.min_rounds, rule.max_rounds),
               "comparison", "Use 2 <= minimum <= maximum.");
  size_t n = contenders.size() + 1;  // the last one is the first again
  AbResult result;
  result.samples.resize(contenders.size());
  double spent = 0;
  for (int round = -rule.warmup_rounds;; ++round) {
    size_t start = size_t(round + rule.warmup_rounds) / 2;
    for (size_t i = 0; i < n; ++i) {
      size_t place = round % 2 ? n - 1 - i : i;
      size_t which = (start + place) % n;
      bool again = which == n - 1;
      size_t contender = again ? 0 : which;
      double seconds = contenders[contender].run();
      if (round < 0) continue;
      (again ? result.again : result.samples[contender]).add(seconds);
      result.order.push_back({contender, again, round, seconds});
      spent += seconds;
    }
    if (round < 0) continue;
    result.rounds = round + 1;
    if (result.rounds < rule.min_rounds) continue;
    bool last = result.rounds >= rule.max_rounds || spent >= rule.max_seconds;
    // The bootstrap is not free: check every tenth round.
    if (!last && (result.rounds - rule.min_rounds) % 10) continue;
    evaluate(result, contenders, rule.seed);
    if (last || known_well(result, rule.target_relative_ci)) return result;
  }
}

std::string describe(const Comparison& c, double noise_floor) {
  bool b_wins = c.verdict == Verdict::b_faster;
  if (c.verdict == Verdict::cannot_tell)
    return fmt::format(
        "no difference beyond noise: {} takes {:.3f}x the time of {} (95%: {:.3f}x to {:.3f}x; noise floor {:.1f}%)",
        c.b, c.ratio, c.a, c.ratio_interval.low, c.ratio_interval.high, 100 * noise_floor);
  auto speed = [&](double ratio) { return b_wins ? 1 / ratio : ratio; };
  double x = speed(c.ratio_interval.low), y = speed(c.ratio_interval.high);
  return fmt::format("{} is {:.2f}x faster than {} (95%: {:.2f}x to {:.2f}x; noise floor {:.1f}%)", b_wins ? c.b : c.a,
                     speed(c.ratio), b_wins ? c.a : c.b, std::min(x, y), std::max(x, y), 100 * noise_floor);
}

}  // namespace crest
