#include "stats/samples.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/error.h"
#include "core/random.h"

using namespace crest;

TEST(Samples, StatisticsOfAKnownSet) {
  Samples s({4, 1, 3, 2});
  EXPECT_DOUBLE_EQ(s.mean(), 2.5);
  EXPECT_DOUBLE_EQ(s.std_dev(), std::sqrt(5.0 / 3));
  EXPECT_DOUBLE_EQ(s.median(), 2.5);
  EXPECT_DOUBLE_EQ(s.min(), 1);
  EXPECT_DOUBLE_EQ(s.max(), 4);
  EXPECT_DOUBLE_EQ(s.quantile(0), 1);
  EXPECT_DOUBLE_EQ(s.quantile(1), 4);
  EXPECT_DOUBLE_EQ(s.quantile(0.25), 1.75);  // type 7, as numpy's default
  EXPECT_DOUBLE_EQ(s.scaled(1000).median(), 2500);
  EXPECT_EQ(s.values()[0], 4) << "the order of measurement is kept";
}

TEST(Samples, EmptyAndSingle) {
  Samples none;
  EXPECT_TRUE(std::isnan(none.mean()));
  EXPECT_TRUE(std::isnan(none.median()));
  EXPECT_TRUE(std::isnan(none.min()));
  Samples one({7});
  EXPECT_EQ(one.std_dev(), 0);
  EXPECT_EQ(one.quantile(0.9), 7);
  EXPECT_TRUE(std::isinf(one.mean_interval().high));
  EXPECT_TRUE(std::isinf(one.median_interval().high));
}

TEST(Samples, RefusesWhatIsNoMeasurement) {
  Samples s;
  EXPECT_THROW(s.add(NAN), Error);
  EXPECT_THROW(s.add(INFINITY), Error);
  EXPECT_THROW(Samples({1}).quantile(1.5), Error);
}

TEST(Samples, StudentTMatchesTables) {
  EXPECT_NEAR(student_t_975(1), 12.7062047, 1e-6);
  EXPECT_NEAR(student_t_975(7), 2.3646243, 1e-4);
  EXPECT_NEAR(student_t_975(10), 2.2281389, 1e-5);
  EXPECT_NEAR(student_t_975(30), 2.0422725, 1e-6);
  EXPECT_NEAR(student_t_975(1000000), 1.9599664, 1e-5);
}

TEST(Samples, MedianIntervalUsesBinomialRanks) {
  EXPECT_TRUE(std::isinf(Samples({1, 2, 3, 4, 5}).median_interval().low));
  Interval six = Samples({6, 5, 4, 3, 2, 1}).median_interval();  // 2 / 2^6 = 3.1% outside
  EXPECT_EQ(six.low, 1);
  EXPECT_EQ(six.high, 6);
  std::vector<double> twenty;
  for (int i = 1; i <= 20; ++i) twenty.push_back(i);
  Interval t = Samples(twenty).median_interval();  // tables: ranks 6 and 15 for n = 20
  EXPECT_EQ(t.low, 6);
  EXPECT_EQ(t.high, 15);
}

TEST(Samples, IntervalsCoverTheTruthAsOftenAsTheySay) {
  int mean_covers = 0, median_covers = 0, trials = 2000;
  for (int trial = 0; trial < trials; ++trial) {
    Samples s;
    for (int i = 0; i < 15; ++i) s.add(10 + normal(3, uint64_t(trial), uint64_t(i)));
    Interval m = s.mean_interval(), d = s.median_interval();
    mean_covers += m.low <= 10 && 10 <= m.high;
    median_covers += d.low <= 10 && 10 <= d.high;
  }
  EXPECT_NEAR(mean_covers / double(trials), 0.95, 0.015);    // 3 standard errors of 2000 trials
  EXPECT_NEAR(median_covers / double(trials), 0.965, 0.02);  // n = 15 gives ranks 4 and 12: 96.5%
}

TEST(StoppingRule, StopsEarlyOnQuietMeasurements) {
  int calls = 0;
  StoppingRule rule{.warmup = 2, .min_samples = 8, .max_samples = 100, .max_seconds = 1e9, .target_relative_ci = 0.01};
  Samples s = measure([&] { return ++calls <= 2 ? 99.0 : 1.0 + 1e-4 * (calls % 3); }, rule);
  EXPECT_EQ(s.count(), 8u);
  EXPECT_EQ(calls, 10);
  EXPECT_LT(s.max(), 2) << "warm-up runs are not samples";
}

TEST(StoppingRule, NoiseUsesTheBudget) {
  uint64_t i = 0;
  auto noisy = [&] { return 1 + uniform(random_bits(1, 2, i++)); };
  StoppingRule rule{.warmup = 0, .min_samples = 6, .max_samples = 40, .max_seconds = 1e9, .target_relative_ci = 0.001};
  EXPECT_EQ(measure(noisy, rule).count(), 40u);
  rule.max_seconds = 15;
  size_t n = measure(noisy, rule).count();
  EXPECT_GE(n, 8u);
  EXPECT_LE(n, 15u);
  rule.max_seconds = 0;
  EXPECT_EQ(measure(noisy, rule).count(), 6u) << "never fewer than the minimum";
  rule = {.warmup = 0, .min_samples = 6, .max_samples = 20, .max_seconds = 1e9, .target_relative_ci = 0};
  EXPECT_EQ(measure([] { return 1.0; }, rule).count(), 20u) << "target 0 uses the whole budget";
}

TEST(StoppingRule, ALimitCountsWarmUpAndMayLeaveOneSample) {
  int runs = 0;
  auto minute = [&] { return ++runs, 60.0; };
  StoppingRule rule{.warmup = 3, .min_samples = 6, .max_seconds = 0};
  EXPECT_EQ(measure(minute, rule).count(), 6u);
  rule.samples_at_limit = 1, runs = 0;
  EXPECT_EQ(measure(minute, rule).count(), 1u);
  EXPECT_EQ(runs, 2) << "one run of warm-up";
  rule.max_seconds = 100;
  EXPECT_EQ(measure(minute, rule).count(), 2u);
}

TEST(StoppingRule, RefusesContradictions) {
  auto one = [] { return 1.0; };
  EXPECT_THROW(measure(one, {.min_samples = 10, .max_samples = 5}), Error);
  EXPECT_THROW(measure(one, {.warmup = -1}), Error);
  EXPECT_THROW(measure(one, {.max_seconds = -1}), Error);
}
