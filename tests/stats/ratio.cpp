// One test for all comparisons of times: B against A mirrors A against B.
#include "stats/ratio.h"

#include <gtest/gtest.h>

#include <rapidcheck/gtest.h>

#include <cmath>

#include "core/random.h"
#include "stats/ab.h"
#include "stats/noise.h"

using namespace crest;

namespace {

std::vector<double> times(double base, double noise, int n, uint64_t seed) {
  std::vector<double> list;
  for (int i = 0; i < n; ++i) list.push_back(base * std::exp(noise * normal(seed, 1, uint64_t(i))));
  return list;
}

}  // namespace

TEST(Ratio, AFloorIsAFactorEitherWay) {
  std::vector<double> fast(10, 10.0), slow(10, 16.5), near(10, 15.5);
  EXPECT_EQ(check_noise(fast, near, 0.6, false).verdict, Verdict::cannot_tell);
  EXPECT_EQ(check_noise(near, fast, 0.6, false).verdict, Verdict::cannot_tell) << "10 / 15.5 is 35% less";
  EXPECT_EQ(check_noise(fast, slow, 0.6, false).verdict, Verdict::a_faster);
  EXPECT_EQ(check_noise(slow, fast, 0.6, false).verdict, Verdict::b_faster);
  EXPECT_EQ(compare_paired(Samples(near), Samples(fast), 0.6).verdict, Verdict::cannot_tell);
}

TEST(Ratio, TheFarEndOfAnIntervalIsTheFloor) {
  EXPECT_DOUBLE_EQ(floor_of({0.5, 1.2}), 1) << "a half is as far as a double";
  EXPECT_DOUBLE_EQ(floor_of({0.9, 1.5}), 0.5);
  EXPECT_NEAR(relative_size(0.8), relative_size(1.25), 1e-15);
}

RC_GTEST_PROP(Ratio, BAgainstAMirrorsAAgainstB, ()) {
  int n = *rc::gen::inRange(1, 30), m = *rc::gen::inRange(1, 30);
  double ratio = double(*rc::gen::inRange(50, 200)) / 100, noise = double(*rc::gen::inRange(0, 30)) / 100,
         floor = double(*rc::gen::inRange(-1, 80)) / 100;
  uint64_t seed = *rc::gen::arbitrary<uint64_t>();
  bool paired = *rc::gen::arbitrary<bool>();
  std::vector<double> a = times(10, noise, n, seed), b = times(10 * ratio, noise, paired ? n : m, seed + 1);
  NoiseCheck x = check_noise(a, b, floor, paired), y = check_noise(b, a, floor, paired);
  RC_ASSERT(x.tested == y.tested);
  RC_ASSERT(x.verdict == mirrored(y.verdict));
  RC_ASSERT(std::abs(x.ratio * y.ratio - 1) < 1e-12);
  RC_ASSERT(std::abs(x.ratio_interval.low * y.ratio_interval.high - 1) < 1e-12);
  RC_ASSERT(std::abs(x.ratio_interval.high * y.ratio_interval.low - 1) < 1e-12);
  RC_ASSERT(x.floor == y.floor);
}

TEST(Ratio, IntervalsHoldTheRatioAsOftenAsTheySay) {
  int inside = 0;
  for (uint64_t t = 0; t < 200; ++t) {
    Interval i = ratio_interval(times(1, 0.1, 20, 2 * t), times(1.3, 0.1, 20, 2 * t + 1), false);
    inside += i.low <= 1.3 && 1.3 <= i.high;
  }
  EXPECT_GE(inside, 180);
  EXPECT_LE(inside, 200);
}
