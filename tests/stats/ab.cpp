#include "stats/ab.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <map>
#include <set>
#include <thread>

#include "core/error.h"
#include "core/random.h"

using namespace crest;

namespace {
// Simulated work: `base` seconds, times log-normal noise of relative size `noise`.
Contender simulated(std::string name, double base, double noise, uint64_t seed) {
  auto i = std::make_shared<uint64_t>(0);
  return {std::move(name), [=] { return base * std::exp(noise * normal(seed, 1, (*i)++)); }};
}

// Two equal programs on a shared machine. Its speed drifts, and disturbances slow down all runs for
// a while.
class Shared {
 public:
  explicit Shared(uint64_t seed) : seed_(seed) {}
  double run() {
    drift_ = 0.98 * drift_ + 0.01 * normal(seed_, 2, n_);
    if (disturbed_ > 0)
      --disturbed_;
    else if (random_bits(seed_, 3, n_) % 25 == 0)
      disturbed_ = int(random_bits(seed_, 4, n_) % 12);
    double load = disturbed_ > 0 ? 0.3 + 0.1 * std::abs(normal(seed_, 5, n_)) : 0;
    return std::exp(drift_ + load + 0.01 * normal(seed_, 1, n_++));
  }

 private:
  uint64_t seed_, n_ = 0;
  double drift_ = 0;
  int disturbed_ = 0;
};
}  // namespace

TEST(InterleavedAB, FindsTheFasterOne) {
  AbResult r =
      compare_interleaved({simulated("a", 1.0, 0.01, 1), simulated("b", 0.8, 0.01, 2), simulated("c", 1.25, 0.01, 3)});
  ASSERT_EQ(r.comparisons.size(), 2u);
  EXPECT_EQ(r.comparisons[0].verdict, Verdict::b_faster);
  EXPECT_NEAR(r.comparisons[0].ratio, 0.8, 0.02);
  EXPECT_LT(r.comparisons[0].ratio_interval.low, 0.8 + 0.01);
  EXPECT_GT(r.comparisons[0].ratio_interval.high, 0.8 - 0.01);
  EXPECT_EQ(r.comparisons[1].verdict, Verdict::a_faster);
  EXPECT_EQ(r.comparisons[1].b, "c");
  EXPECT_LT(r.noise_floor, 0.05);
  EXPECT_NE(describe(r.comparisons[0]).find("b is 1.2"), std::string::npos);
  EXPECT_NE(describe(r.comparisons[1]).find("a is 1.2"), std::string::npos);
}

TEST(InterleavedAB, SameAgainstSameRarelyGivesAVerdict) {
  AbRule rule{.min_rounds = 20, .max_rounds = 20};
  int quiet = 0, shared = 0;
  for (uint64_t t = 0; t < 50; ++t) {
    auto r = compare_interleaved({simulated("a", 1, 0.05, 2 * t), simulated("b", 1, 0.05, 2 * t + 1)}, rule);
    quiet += r.comparisons[0].verdict != Verdict::cannot_tell;
    Shared machine(t);
    auto run = [&] { return machine.run(); };
    shared += compare_interleaved({{"a", run}, {"b", run}}, rule).comparisons[0].verdict != Verdict::cannot_tell;
  }
  EXPECT_LE(quiet, 2) << "the floor must keep false claims below the interval's own 5%";
  EXPECT_LE(shared, 2);
}

// Also if one of them is noisier: the floor is the pair's.
TEST(InterleavedAB, BAgainstAMirrorsAAgainstB) {
  int claims = 0;
  for (uint64_t t = 0; t < 40; ++t) {
    AbRule rule{.min_rounds = 8, .max_rounds = 8, .apart = true};  // no discarded runs: the samples are the same
    auto calm = [&] { return simulated("calm", 1, 0.003, 2 * t); };
    auto noisy = [&] { return simulated("noisy", 1.03, 0.03, 2 * t + 1); };
    AbResult x = compare_interleaved({calm(), noisy()}, rule), y = compare_interleaved({noisy(), calm()}, rule);
    ASSERT_EQ(x.samples[0].values(), y.samples[1].values());
    EXPECT_EQ(x.comparisons[0].verdict, mirrored(y.comparisons[0].verdict)) << "case " << t;
    EXPECT_EQ(x.noise_floor, y.noise_floor) << "case " << t;
    EXPECT_NEAR(x.comparisons[0].ratio * y.comparisons[0].ratio, 1, 1e-12) << "case " << t;
    claims += x.comparisons[0].verdict != Verdict::cannot_tell;
  }
  EXPECT_GT(claims, 0) << "cases on both sides of the floor";
  EXPECT_LT(claims, 40);
}

TEST(InterleavedAB, DifferenceBelowTheFloorIsNotClaimed) {
  Samples a(std::vector<double>(20, 1.0)), b(std::vector<double>(20, 1.02));
  EXPECT_EQ(compare_paired(a, b, 0.01).verdict, Verdict::a_faster);
  Comparison c = compare_paired(a, b, 0.03);
  EXPECT_EQ(c.verdict, Verdict::cannot_tell);
  c.a = "x", c.b = "y";
  EXPECT_NE(describe(c).find("no difference beyond noise: y takes"), std::string::npos);
}

TEST(InterleavedAB, DriftOfTheMachineCancels) {
  // The machine gets 3x slower during the run; one after the other, A would look far faster.
  double slow = 1;
  auto work = [&](double base) { return [&slow, base] { return base * (slow *= 1.005); }; };
  AbResult r =
      compare_interleaved({{"a", work(1)}, {"b", work(0.9)}}, {.warmup_rounds = 0, .min_rounds = 60, .max_rounds = 60});
  EXPECT_NEAR(r.comparisons[0].ratio, 0.9, 0.03);
  EXPECT_NE(r.comparisons[0].verdict, Verdict::a_faster);
}

namespace {

// A machine with a faster run directly after one of the same program, as with caches.
struct CachedMachine {
  uint64_t seed;
  double noise = 0.02, warm = 0.9, third_evicts = 1;
  uint64_t runs = 0;
  std::string last = {};

  Contender contender(const std::string& program, double base = 1) {
    return {program, [this, program, base] {
              double seconds = base * std::exp(noise * normal(seed, 2, runs++));
              if (last == program) seconds *= warm;
              if (last == "c") seconds *= third_evicts;
              last = program;
              return seconds;
            }};
  }
};

struct Claims {
  int a = 0, b = 0;
  double ratio = 0;  // mean of logarithms
};
Claims identical(int runs, AbRule rule, bool third) {
  Claims claims;
  for (int t = 0; t < runs; ++t) {
    CachedMachine m{.seed = uint64_t(t), .third_evicts = 1.2};
    std::vector<Contender> list = {m.contender("a"), m.contender("b")};
    if (third) list.push_back(m.contender("c", 2));
    rule.seed = uint64_t(t);
    Comparison c = compare_interleaved(list, rule).comparisons[0];
    claims.a += c.verdict == Verdict::a_faster, claims.b += c.verdict == Verdict::b_faster;
    claims.ratio += std::log(c.ratio) / runs;
  }
  return claims;
}

}  // namespace

// The run before a sample changes its time. This must favor none of two equal contenders: neither
// the one with the larger noise, nor the one that follows a third contender more often.
TEST(InterleavedAB, WhatRanBeforeFavorsNobody) {
  constexpr int runs = 200;
  for (bool third : {false, true})
    for (int rounds : {6, 12}) {
      Claims c = identical(runs, {.warmup_rounds = 0, .min_rounds = rounds, .max_rounds = rounds}, third);
      std::string which = std::to_string(rounds) + (third ? " rounds of three" : " rounds of two");
      EXPECT_LE(c.a + c.b, runs / 20) << which;
      EXPECT_LE(std::abs(c.a - c.b), 6) << which;
      EXPECT_NEAR(c.ratio, 0, third ? 0.01 : 0.003) << which;
    }
}

TEST(InterleavedAB, EveryRoundRunsAllAndNobodyFollowsItself) {
  for (size_t n : {2, 3, 5}) {
    std::vector<size_t> order;
    std::vector<Contender> list;
    for (size_t i = 0; i < n; ++i)
      list.push_back({std::string(1, char('a' + i)), [&order, i] { return order.push_back(i), 1.0; }});
    constexpr int rounds = 400;
    AbResult r =
        compare_interleaved(list, {.warmup_rounds = 4, .min_rounds = rounds, .max_rounds = rounds, .max_seconds = 1e9});
    ASSERT_EQ(r.order.size(), rounds * n + rounds / 4);
    EXPECT_EQ(r.rounds, rounds);
    std::map<std::pair<size_t, size_t>, int> follows;
    std::map<size_t, int> first, parity;
    std::map<int, std::set<size_t>> in_round;
    size_t before = order.size() - r.order.size();
    for (size_t i = 0; i < r.order.size(); ++i) {
      const AbRun& run = r.order[i];
      EXPECT_EQ(run.contender, order[before + i]) << "order is that of the runs";
      if (run.discarded) continue;
      if (in_round[run.round].empty()) ++first[run.contender];
      EXPECT_TRUE(in_round[run.round].insert(run.contender).second);
      ++follows[{order[before + i - 1], run.contender}];
      parity[run.contender] += int(i % 2);
    }
    EXPECT_EQ(in_round.size(), size_t(rounds));
    for (size_t x = 0; x < n; ++x) {
      EXPECT_EQ(r.samples[x].count(), size_t(rounds));
      EXPECT_NEAR(first[x], rounds / double(n), 60) << "nobody always goes first";
      EXPECT_NEAR(parity[x], rounds / 2.0, 80) << "nor runs in every second place";
      for (size_t y = 0; y < n; ++y)
        EXPECT_NEAR((follows[{x, y}]), x == y ? 0 : rounds / double(n - 1), x == y ? 0 : 60) << x << " " << y;
    }
  }
}

TEST(InterleavedAB, RunsApartAreAllSamples) {
  AbResult r = compare_interleaved({simulated("a", 1, 0.1, 1), simulated("b", 1, 0.1, 2)},
                                   {.warmup_rounds = 0, .min_rounds = 6, .max_rounds = 6, .apart = true});
  EXPECT_EQ(r.order.size(), 12u);
}

TEST(InterleavedAB, TimeLimitAndErrors) {
  AbResult r = compare_interleaved({simulated("a", 1, 0.3, 1), simulated("b", 1, 0.3, 2)},
                                   {.min_rounds = 5, .max_rounds = 1000, .max_seconds = 60});
  EXPECT_LE(r.rounds, 50);
  r = compare_interleaved({simulated("a", 1, 0.3, 1), simulated("b", 1, 0.3, 2)}, {.max_seconds = 0});
  EXPECT_EQ(r.rounds, fewest_rounds) << "the limit counts, not the usual number of rounds";
  // Where a caller takes fewer, nothing is claimed of them, however much they differ.
  int warm = 0;
  r = compare_interleaved({{"a", [&] { return ++warm, 100.0; }}, {"b", [] { return 1.0; }}},
                          {.warmup_rounds = 2, .max_seconds = 0, .rounds_at_limit = 1});
  EXPECT_EQ(r.rounds, 1);
  EXPECT_LE(warm, 3) << "one round of warm-up, one discarded run at most";
  EXPECT_EQ(r.comparisons[0].verdict, Verdict::cannot_tell);
  EXPECT_LT(r.noise_floor, 0);
  EXPECT_EQ(describe(r.comparisons[0]), "too few rounds to tell: b takes 0.010x the time of a");
  // So does work outside of the reported times, such as profiled runs.
  auto slow = [] { return std::this_thread::sleep_for(std::chrono::milliseconds(1)), 1e-9; };
  r = compare_interleaved({{"a", slow}, {"b", slow}}, {.min_rounds = 16, .max_seconds = 0.01, .target_relative_ci = 0});
  EXPECT_LT(r.rounds, 16);
  EXPECT_THROW(compare_interleaved({simulated("a", 1, 0, 1)}), Error);
  EXPECT_THROW(compare_interleaved({simulated("a", 1, 0, 1), simulated("b", 1, 0, 1)}, {.min_rounds = 3}), Error);
  EXPECT_THROW(compare_interleaved({simulated("a", 0, 0, 1), simulated("b", 1, 0, 1)}), Error);
  EXPECT_THROW(compare_paired(Samples({1}), Samples({1, 2}), 0), Error);
}
