#include "measure/ab.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "core/random.h"

namespace crest {

const char* name(Verdict verdict) {
  switch (verdict) {
    case Verdict::a_faster: return "a_faster";
    case Verdict::b_faster: return "b_faster";
    case Verdict::cannot_tell: return "cannot_tell";
  }
  return "";
}

static double median_in_place(std::vector<double>& v) {
  size_t half = v.size() / 2;
  std::nth_element(v.begin(), v.begin() + ptrdiff_t(half), v.end());
  double high = v[half];
  if (v.size() % 2) return high;
  return (high + *std::max_element(v.begin(), v.begin() + ptrdiff_t(half))) / 2;
}

// Rounds are resampled as a whole: what slowed a round down slowed both of its samples.
static Interval bootstrap_ratio(const std::vector<double>& a, const std::vector<double>& b, uint64_t seed) {
  constexpr int resamples = 1000;
  size_t n = a.size();
  std::vector<double> ratios, x(n), y(n);
  ratios.reserve(resamples);
  for (int r = 0; r < resamples; ++r) {
    for (size_t i = 0; i < n; ++i) {
      size_t pick = size_t((uint64_t(random_bits(seed, uint64_t(r), i)) * n) >> 32);
      x[i] = a[pick], y[i] = b[pick];
    }
    ratios.push_back(median_in_place(y) / median_in_place(x));
  }
  Samples sorted(std::move(ratios));
  return {sorted.quantile(0.025), sorted.quantile(0.975)};
}

Comparison compare_paired(const Samples& a, const Samples& b, double noise_floor, uint64_t seed) {
  if (a.count() != b.count() || a.empty())
    fail_internal(fmt::format("{} samples against {}", a.count(), b.count()), "comparison");
  if (a.min() <= 0 || b.min() <= 0)
    fail("a run took no time by its own clock", "comparison", "Repeat the work until a run takes a millisecond.");
  Comparison c;
  c.ratio = b.median() / a.median();
  c.ratio_interval = bootstrap_ratio(a.values(), b.values(), seed);
  if (std::abs(c.ratio - 1) > noise_floor) {
    if (c.ratio_interval.high < 1) c.verdict = Verdict::b_faster;
    if (c.ratio_interval.low > 1) c.verdict = Verdict::a_faster;
  }
  return c;
}

static double floor_of(const Comparison& same) {
  return std::max(std::abs(same.ratio_interval.low - 1), std::abs(same.ratio_interval.high - 1));
}

static void evaluate(AbResult& result, const std::vector<Contender>& contenders, uint64_t seed) {
  result.noise_floor = floor_of(compare_paired(result.samples[0], result.again, 0, seed));
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
    if ((c.ratio_interval.high - c.ratio_interval.low) / 2 > target * c.ratio) return false;
  return true;
}

AbResult compare_interleaved(const std::vector<Contender>& contenders, const AbRule& rule) {
  if (contenders.size() < 2) fail_usage("a comparison needs two contenders or more", "comparison");
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
    // The bootstrap is not free: look every tenth round.
    if (!last && (result.rounds - rule.min_rounds) % 10) continue;
    evaluate(result, contenders, rule.seed);
    if (last || known_well(result, rule.target_relative_ci)) return result;
  }
}

std::string describe(const Comparison& c, double noise_floor) {
  bool b_wins = c.verdict == Verdict::b_faster;
  if (c.verdict == Verdict::cannot_tell)
    return fmt::format(
        "cannot tell {} from {}: {} takes {:.3f}x the time (95%: {:.3f}x to {:.3f}x; noise floor {:.1f}%)", c.b, c.a,
        c.b, c.ratio, c.ratio_interval.low, c.ratio_interval.high, 100 * noise_floor);
  auto speed = [&](double ratio) { return b_wins ? 1 / ratio : ratio; };
  double x = speed(c.ratio_interval.low), y = speed(c.ratio_interval.high);
  return fmt::format("{} is {:.2f}x faster than {} (95%: {:.2f}x to {:.2f}x; noise floor {:.1f}%)", b_wins ? c.b : c.a,
                     speed(c.ratio), b_wins ? c.a : c.b, std::min(x, y), std::max(x, y), 100 * noise_floor);
}

}  // namespace crest
