// The split of a difference over the factors of a time.
#include "compare/split.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>
#include <numeric>

using namespace crest;

namespace {

double sum(const FactorMs& parts) { return std::accumulate(parts.begin(), parts.end(), 0.0); }
double part(const FactorMs& parts, Factor f) { return parts[size_t(f)]; }

// A group with a known floor: contractions at `rate`, the rest at the bandwidth.
Work work(double ms, double flops, double rate, double bytes) {
  Work w;
  w.ms = ms;
  w.pools[0] = {flops, 0, flops / rate};
  w.pools[1] = {0, bytes, 0};
  return w;
}

constexpr Devices same = {1e12, 1e12, 1};

Work any_work() {
  auto number = [] { return double(*rc::gen::inRange(0, 1000)); };
  Work w;
  w.ms = number() / 10;
  for (auto& p : w.pools) {
    p.flops = number() * 1e9, p.bytes = number() * 1e6;
    p.arithmetic_seconds = p.flops / (1e12 * (1 + number()));
  }
  return w;
}

Devices any_devices() {
  auto bandwidth = [] { return 1e11 * double(*rc::gen::inRange(0, 20)); };
  return {bandwidth(), bandwidth(), double(*rc::gen::inRange(5, 20)) / 10};
}

}  // namespace

RC_GTEST_PROP(Split, PartsSumToTheDifference, ()) {
  Work a = any_work(), b = any_work();
  FactorMs parts = split(a, b, any_devices());
  RC_ASSERT(std::abs(sum(parts) - (b.ms - a.ms)) <= 1e-9 * std::max({1.0, a.ms, b.ms}));
}

RC_GTEST_PROP(Split, TheOtherWayRoundHasTheOtherSign, ()) {
  Work a = any_work(), b = any_work();
  Devices forth = any_devices();
  Devices back = {forth.bandwidth_b, forth.bandwidth_a, 1 / forth.clock_ratio};
  FactorMs x = split(a, b, forth), y = split(b, a, back);
  for (size_t f = 0; f < x.size(); ++f) RC_ASSERT(std::abs(x[f] + y[f]) <= 1e-9 * std::max({1.0, a.ms, b.ms}));
}

RC_GTEST_PROP(Split, EqualSidesHaveNoParts, ()) {
  Work a = any_work();
  Devices d = any_devices();
  d.bandwidth_b = d.bandwidth_a, d.clock_ratio = 1;
  for (double p : split(a, a, d)) RC_ASSERT(std::abs(p) <= 1e-12 * std::max(1.0, a.ms));
}

TEST(Split, OneFactorAloneTakesAll) {
  // Compute-bound at half of the limit: 1 ms of arithmetic in 2 ms.
  Work a = work(2, 1e9, 1e12, 0);
  struct Case {
    Work b;
    Devices devices;
    Factor factor;
  };
  Devices faster_memory = {1e12, 2e12, 1}, faster_clock = {1e12, 1e12, 2};
  for (auto& c : {Case{work(4, 2e9, 1e12, 0), same, Factor::flops}, Case{work(1, 1e9, 2e12, 0), same, Factor::rate},
                  Case{work(3, 1e9, 1e12, 0), same, Factor::efficiency},
                  Case{work(1, 1e9, 1e12, 0), faster_clock, Factor::clocks}}) {
    FactorMs parts = split(a, c.b, c.devices);
    EXPECT_NEAR(part(parts, c.factor), c.b.ms - a.ms, 1e-12) << name(c.factor);
  }
  Work m = work(2, 0, 1, 1e9);
  EXPECT_NEAR(part(split(m, work(6, 0, 1, 3e9), same), Factor::bytes), 4, 1e-12);
  EXPECT_NEAR(part(split(m, work(1, 0, 1, 1e9), faster_memory), Factor::bandwidth), -1, 1e-12);
}

TEST(Split, TwoFactorsShareByTheMeanOverTheOrders) {
  // Memory-bound at the limit, then half the bytes at twice the slowdown: bytes first: 2 -> 1 (-1),
  // then +1; slowdown first: 2 -> 4 (+2), then -2. Means: -1.5 and +1.5.
  Work a = work(2, 0, 1, 2e9), b = work(2, 0, 1, 1e9);
  FactorMs parts = split(a, b, same);
  EXPECT_NEAR(part(parts, Factor::bytes), -1.5, 1e-12);
  EXPECT_NEAR(part(parts, Factor::efficiency), 1.5, 1e-12);
}

TEST(Split, PrecisionMovesARowFromArithmeticToMemoryWithoutMoreOfEither) {
  // 1 TFLOP at 50 TFLOP/s is 20 ms, 4 GB at 1 TB/s 4 ms; in half precision at 700 TFLOP/s 1.4 ms
  // and 2 GB 2 ms.
  Work a, b;
  a.ms = 20, a.pools[0] = {1e12, 4e9, 0.02};
  b.ms = 2, b.pools[0] = {1e12, 2e9, 1e12 / 700e12};
  FactorMs parts = split(a, b, same);
  EXPECT_EQ(part(parts, Factor::flops), 0);
  EXPECT_LT(part(parts, Factor::rate), -15);
  EXPECT_LE(part(parts, Factor::bytes), 0);
  EXPECT_NEAR(sum(parts), -18, 1e-12);
}

TEST(Split, WorkThatOneSideDoesNotDoIsWork) {
  Work none, b = work(3, 1e9, 1e12, 1e9);
  FactorMs parts = split(none, b, same);
  EXPECT_NEAR(part(parts, Factor::flops) + part(parts, Factor::bytes), 3, 1e-12);
  EXPECT_EQ(part(parts, Factor::efficiency), 0);
  EXPECT_NEAR(sum(split(b, none, same)), -3, 1e-12);
}

TEST(Split, TimeWithoutKnownWorkIsNotExplained) {
  Work traced, b = work(3, 1e9, 1e12, 1e9);
  traced.ms = 5;  // a kernel of an imported trace
  for (auto& [x, y] : {std::pair{traced, b}, std::pair{b, traced}, std::pair{traced, Work()}}) {
    FactorMs parts = split(x, y, same);
    EXPECT_EQ(part(parts, Factor::unsplit), y.ms - x.ms);
    EXPECT_EQ(sum(parts), y.ms - x.ms);
  }
  // Nor where the device's limits are unknown.
  EXPECT_EQ(part(split(b, work(4, 0, 1, 2e9), {0, 0, 1}), Factor::unsplit), 1);
}
