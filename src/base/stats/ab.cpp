#include "stats/ab.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/error.h"
#include "core/random.h"
#include "core/timer.h"

namespace crest {

Comparison compare_paired(const Samples& a, const Samples& b, double noise_floor, uint64_t seed) {
  if (a.count() != b.count() || a.empty())
    fail_internal(fmt::format("{} samples against {}", a.count(), b.count()), "comparison");
  if (a.min() <= 0 || b.min() <= 0)
    fail("a run took no time by its own clock", "comparison", "Repeat the work until a run takes a millisecond.");
  Comparison c;
  c.noise_floor = noise_floor;
  c.ratio = b.median() / a.median();
  c.ratio_interval = ratio_interval(a.values(), b.values(), true, seed);
  c.verdict = verdict_of(c.ratio, c.ratio_interval, noise_floor);
  return c;
}

void check_rounds(int64_t rounds) {
  if (rounds > 0 && rounds < fewest_rounds)
    fail_usage(fmt::format("a comparison needs at least {} rounds", fewest_rounds), "--samples",
               fmt::format("Give {} or more; 16 is usual.", fewest_rounds));
}

namespace {

constexpr int rounds_between_discarded = 4;

// The order of the contenders. A program right after itself finds its data in the caches, so a
// sample's time depends on the previous run. Every sample follows another contender, chosen at
// random, so equal contenders have equal times, whatever their names.
class Order {
 public:
  Order(size_t contenders, uint64_t seed) : seed_(mix(seed)), next_(contenders) {
    std::iota(next_.begin(), next_.end(), size_t(0));
  }
  // Two contenders can only take turns, so a disturbance every second run would hit one of them. In
  // half of the cases a discarded run of either shifts the phase.
  size_t discarded() { return last_ = pick(next_.size()); }
  // Runs every contender once. The first is not the last one of the previous round.
  const std::vector<size_t>& round() {
    do
      for (size_t i = next_.size() - 1; i > 0; --i) std::swap(next_[i], next_[pick(i + 1)]);
    while (next_.front() == last_);
    last_ = next_.back();
    return next_;
  }

 private:
  size_t pick(size_t n) { return size_t(uint64_t(random_bits(seed_, 0, picked_++)) * n >> 32); }
  uint64_t seed_, picked_ = 0;
  std::vector<size_t> next_;
  size_t last_ = SIZE_MAX;
};

// How much a contender differs from itself between neighboring rounds, 95%.
double floor_between_rounds(const Samples& samples, uint64_t seed) {
  Samples first, second;
  for (size_t i = 0; i + 1 < samples.count(); i += 2)
    first.add(samples.values()[i]), second.add(samples.values()[i + 1]);
  return floor_of(compare_paired(first, second, 0, seed).ratio_interval);
}

void evaluate(AbResult& result, const std::vector<Contender>& contenders, uint64_t seed) {
  result.noise_floor = 0;
  result.comparisons.clear();
  if (result.rounds < fewest_rounds) {
    result.noise_floor = -1;
    for (size_t i = 1; i < contenders.size(); ++i) {
      const double ratio = result.samples[i].median() / result.samples[0].median();
      result.comparisons.push_back(
          {contenders[0].name, contenders[i].name, ratio, {ratio, ratio}, -1, Verdict::cannot_tell});
    }
    return;
  }
  const double first = floor_between_rounds(result.samples[0], seed);
  for (size_t i = 1; i < contenders.size(); ++i) {
    double floor = std::max(first, floor_between_rounds(result.samples[i], seed));
    Comparison c = compare_paired(result.samples[0], result.samples[i], floor, seed + i);
    c.a = contenders[0].name, c.b = contenders[i].name;
    result.noise_floor = std::max(result.noise_floor, floor);
    result.comparisons.push_back(std::move(c));
  }
}

bool known_well(const AbResult& result, double target) {
  if (target <= 0) return false;
  for (auto& c : result.comparisons)
    if (std::log(c.ratio_interval.high / c.ratio_interval.low) / 2 > std::log1p(target)) return false;
  return true;
}

}  // namespace

AbResult compare_interleaved(const std::vector<Contender>& contenders, const AbRule& rule) {
  if (contenders.size() < 2) fail_usage("a comparison needs at least two contenders", "comparison");
  if (rule.warmup_rounds < 0 || rule.min_rounds < fewest_rounds || rule.rounds_at_limit < 1 ||
      rule.max_rounds < rule.min_rounds)
    fail_usage(fmt::format("at least {} and at most {} rounds are not possible", rule.min_rounds, rule.max_rounds),
               "comparison", fmt::format("Use {} <= minimum <= maximum.", fewest_rounds));
  AbResult result;
  result.samples.resize(contenders.size());
  Order order(contenders.size(), rule.seed);
  const Timer timer;
  double spent = 0;        // as the contenders report it
  bool evaluated = false;  // with its own data in the caches
  const bool strict = rule.rounds_at_limit < fewest_rounds;
  for (int round = -rule.warmup_rounds;; ++round) {
    const bool no_time = strict && timer.seconds() >= rule.max_seconds;
    if (!rule.apart && !no_time && (evaluated || (round + rule.warmup_rounds) % rounds_between_discarded == 0)) {
      evaluated = false;
      size_t which = order.discarded();
      double seconds = contenders[which].run();
      if (round >= 0) result.order.push_back({which, round, seconds, true}), spent += seconds;
    }
    for (size_t which : order.round()) {
      double seconds = contenders[which].run();
      if (round < 0) continue;
      result.samples[which].add(seconds);
      result.order.push_back({which, round, seconds, false});
      spent += seconds;
    }
    if (round < 0) {
      if (strict && timer.seconds() > rule.max_seconds / 4) round = -1;
      continue;
    }
    result.rounds = round + 1;
    bool late = std::max(spent, timer.seconds()) >= rule.max_seconds;
    if (result.rounds < (late ? rule.rounds_at_limit : rule.min_rounds)) continue;
    bool last = late || result.rounds >= rule.max_rounds;
    // The bootstrap is not free: check every tenth round.
    if (!last && (result.rounds - rule.min_rounds) % 10) continue;
    evaluate(result, contenders, rule.seed);
    evaluated = true;
    if (last || known_well(result, rule.target_relative_ci)) return result;
  }
}

std::string describe(const Comparison& c) {
  if (c.noise_floor < 0)
    return fmt::format("too few rounds to tell: {} takes {:.3f}x the time of {}", c.b, c.ratio, c.a);
  bool b_wins = c.verdict == Verdict::b_faster;
  if (c.verdict == Verdict::cannot_tell)
    return fmt::format(
        "no difference beyond noise: {} takes {:.3f}x the time of {} (95%: {:.3f}x to {:.3f}x; noise floor {:.1f}%)",
        c.b, c.ratio, c.a, c.ratio_interval.low, c.ratio_interval.high, 100 * c.noise_floor);
  auto speed = [&](double ratio) { return b_wins ? 1 / ratio : ratio; };
  double x = speed(c.ratio_interval.low), y = speed(c.ratio_interval.high);
  return fmt::format("{} is {:.2f}x faster than {} (95%: {:.2f}x to {:.2f}x; noise floor {:.1f}%)", b_wins ? c.b : c.a,
                     speed(c.ratio), b_wins ? c.a : c.b, std::min(x, y), std::max(x, y), 100 * c.noise_floor);
}

}  // namespace crest
