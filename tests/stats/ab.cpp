#include "stats/ab.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "core/error.h"
#include "core/random.h"

using namespace crest;

namespace {
// Simulated work: `base` seconds, times log-normal noise of relative size `noise`.
Contender simulated(std::string name, double base, double noise, uint64_t seed) {
  auto i = std::make_shared<uint64_t>(0);
  return {std::move(name), [=] { return base * std::exp(noise * normal(seed, 1, (*i)++)); }};
}
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
  EXPECT_NE(describe(r.comparisons[0], r.noise_floor).find("b is 1.2"), std::string::npos);
  EXPECT_NE(describe(r.comparisons[1], r.noise_floor).find("a is 1.2"), std::string::npos);
}

TEST(InterleavedAB, SameAgainstSameRarelyGivesAVerdict) {
  int claims = 0;
  for (uint64_t t = 0; t < 100; ++t) {
    AbRule rule{.min_rounds = 20, .max_rounds = 20};
    auto r = compare_interleaved({simulated("a", 1, 0.05, 2 * t), simulated("b", 1, 0.05, 2 * t + 1)}, rule);
    claims += r.comparisons[0].verdict != Verdict::cannot_tell;
  }
  EXPECT_LE(claims, 3) << "the floor must keep false claims below the interval's own 5%";
}

TEST(InterleavedAB, DifferenceBelowTheFloorIsNotClaimed) {
  Samples a(std::vector<double>(20, 1.0)), b(std::vector<double>(20, 1.02));
  EXPECT_EQ(compare_paired(a, b, 0.01).verdict, Verdict::a_faster);
  Comparison c = compare_paired(a, b, 0.03);
  EXPECT_EQ(c.verdict, Verdict::cannot_tell);
  c.a = "x", c.b = "y";
  EXPECT_NE(describe(c, 0.03).find("no difference beyond noise: y takes"), std::string::npos);
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

TEST(InterleavedAB, EveryRoundRunsAllAndOrdersAlternate) {
  std::vector<char> order;
  auto log = [&](char c) { return [&order, c] { return order.push_back(c), 1.0; }; };
  AbResult r = compare_interleaved({{"a", log('a')}, {"b", log('b')}, {"c", log('c')}},
                                   {.warmup_rounds = 1, .min_rounds = 8, .max_rounds = 8});
  ASSERT_EQ(order.size(), 9u * 4);
  EXPECT_EQ(r.rounds, 8);
  std::map<char, int> first;
  for (size_t round = 1; round < 9; ++round) {
    std::string one(order.begin() + ptrdiff_t(round * 4), order.begin() + ptrdiff_t(round * 4 + 4));
    ++first[one[0]];
    std::sort(one.begin(), one.end());
    EXPECT_EQ(one, "aabc");
  }
  EXPECT_EQ(first.size(), 3u) << "nobody always goes first";
  for (auto& s : r.samples) EXPECT_EQ(s.count(), 8u);
  EXPECT_EQ(r.again.count(), 8u);
}

TEST(InterleavedAB, TimeLimitAndErrors) {
  AbResult r = compare_interleaved({simulated("a", 1, 0.3, 1), simulated("b", 1, 0.3, 2)},
                                   {.min_rounds = 5, .max_rounds = 1000, .max_seconds = 60});
  EXPECT_LE(r.rounds, 40);
  EXPECT_THROW(compare_interleaved({simulated("a", 1, 0, 1)}), Error);
  EXPECT_THROW(compare_interleaved({simulated("a", 0, 0, 1), simulated("b", 1, 0, 1)}), Error);
  EXPECT_THROW(compare_paired(Samples({1}), Samples({1, 2}), 0), Error);
}
