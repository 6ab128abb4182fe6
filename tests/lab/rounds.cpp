// Two rounds of a measurement: their combined figures, and the noise floor of all measurements
// together.
#include "lab/rounds.h"

#include <gtest/gtest.h>

#include <cmath>

#include "lab/judge.h"
#include "lab/measurement.h"
#include "lab/result_json.h"

using namespace crest::lab;

namespace {

Row round_of(double ms, double low, double high, const char* run) {
  Row row;
  row.columns["ms"] = Value::range(ms, low, high);
  row.columns["tflops"] = Value::range(1 / ms, 1 / high, 1 / low);
  row.columns["ms_min"] = Value::number(low);
  row.columns["ms_max"] = Value::number(high);
  row.columns["ms_std"] = Value::number(ms / 10);
  row.columns["samples"] = Value::number(5);
  row.columns["planned_bytes"] = Value::number(64);
  row.columns["held_bytes"] = Value::number(ms * 10);
  row.run = run;
  return row;
}

Row two(double a, double b) { return combine_rounds(round_of(a, a, a, "1"), round_of(b, b, b, "2")); }

}  // namespace

TEST(Rounds, TimesAreMeansThatReachToBothRounds) {
  Row row = combine_rounds(round_of(1, 0.9, 1.1, "first"), round_of(1.21, 1.2, 1.25, "second"));
  const Value& ms = row.columns.at("ms");
  EXPECT_DOUBLE_EQ(ms.x, 1.1);
  EXPECT_DOUBLE_EQ(ms.low, 1);  // the first round's median: half of both rounds' own intervals reaches 5% only
  EXPECT_DOUBLE_EQ(ms.high, 1.21);
  EXPECT_NEAR(row.columns.at("tflops").x * ms.x, 1, 1e-12);
  EXPECT_EQ(row.columns.at("ms_min").x, 0.9);
  EXPECT_EQ(row.columns.at("ms_max").x, 1.25);
  EXPECT_NEAR(row.columns.at("ms_std").x, std::sqrt((0.01 + 0.0146410) / 2), 1e-9);
  EXPECT_EQ(row.columns.at("samples").x, 10);
  EXPECT_TRUE(row.columns.at("planned_bytes").exact());
  EXPECT_DOUBLE_EQ(row.columns.at("held_bytes").x, 12.1);
  EXPECT_EQ(row.run, "first");
  EXPECT_EQ(row.again, "second");
}

// The first measurement of a process also holds what others left: the order is reversed in round 2.
TEST(Rounds, TransientMemoryIsThatOfTheSmallerRound) {
  Row first = round_of(1, 1, 1, "1"), second = round_of(1, 1, 1, "2");
  first.columns["tuning_transient_bytes"] = Value::number(828),
  second.columns["tuning_transient_bytes"] = Value::number(0);
  Row row = combine_rounds(first, second);
  EXPECT_EQ(row.columns.at("tuning_transient_bytes").x, 0);
  EXPECT_EQ(column_of(row, "rounds").x, 2);
  EXPECT_EQ(column_of(first, "rounds").x, 1);
}

TEST(Rounds, EqualRoundsHalveTheVariance) {
  Row row = combine_rounds(round_of(1, 0.98, 1.02, "a"), round_of(1, 0.98, 1.02, "b"));
  EXPECT_NEAR(row.columns.at("ms").low, 1 - 0.02 / std::sqrt(2.0), 1e-3);
  EXPECT_NEAR(row.columns.at("ms").high, 1 + 0.02 / std::sqrt(2.0), 1e-3);
}

TEST(Rounds, NoiseIsTheDeviationOfDuplicatesTimesStudentsT) {
  // Two measurements with differences of 2% and -2%: one round deviates by 2% / sqrt 2; t(0.975, 2)
  // = 4.303.
  auto noise = noise_of_rounds({two(1, std::exp(0.02)), two(std::exp(0.02), 1)});
  ASSERT_TRUE(noise.has_value());
  EXPECT_EQ(noise->measurements, 2u);
  EXPECT_NEAR(noise->relative, std::expm1(4.303 * 0.02 / std::sqrt(2.0)), 1e-4);
  std::vector<Row> many(40, two(1, std::exp(0.02)));
  EXPECT_NEAR(noise_of_rounds(many)->relative, std::expm1(2.021 * 0.02 / std::sqrt(2.0)), 1e-4);
  EXPECT_FALSE(noise_of_rounds({two(1, 2), round_of(1, 1, 1, "once")}).has_value());
}

// One measurement of a hundred pairs. With the noise floor as their interval, equal measurements
// differ in at most 5% of the pairs.
TEST(Rounds, TheFloorCoversMeasurementsThatAreEquallyFast) {
  uint64_t state = 7;
  auto uniform = [&] {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return double(state >> 11) * 0x1p-53;
  };
  auto noisy = [&] {  // about normal, 1%
    double sum = -6;
    for (int i = 0; i < 12; ++i) sum += uniform();
    return std::exp(0.01 * sum);
  };
  int told = 0, all = 0;
  for (int experiment = 0; experiment < 400; ++experiment) {
    Table table;
    for (int measurement = 0; measurement < 6; ++measurement) table.rows.push_back(two(noisy(), noisy()));
    widen_times(table, noise_of_rounds(table.rows)->relative);
    for (int measurement = 0; measurement < 6; measurement += 2, ++all) {
      Value a = table.rows[size_t(measurement)].columns["ms"], b = table.rows[size_t(measurement) + 1].columns["ms"];
      told += compare("<", a, b).known();
    }
  }
  EXPECT_LT(double(told) / all, 0.05);
  EXPECT_GT(told, 0) << "a floor that nothing ever passes";
}

TEST(Rounds, FloorsAreAddedToRowsOfOneRoundAndReachedByThoseOfTwo) {
  Table table;
  table.rows = {round_of(1, 0.9, 1.1, "once"), two(1, 1)};
  widen_times(table, 0.1);
  double half = 0.1 / 2.1;
  EXPECT_NEAR(table.rows[0].columns["ms"].high, 1.1 * (1 + half), 1e-12);
  EXPECT_NEAR(table.rows[1].columns["ms"].high, 1 + half, 1e-12);
  EXPECT_NEAR(table.rows[1].columns["ms"].low, 1 - half, 1e-12);
}

TEST(Rounds, ARowComesBackFromItsRecord) {
  Row row = row_from_json(to_json(two(1, 2)));
  EXPECT_EQ(row.again, "2");
  EXPECT_EQ(row.round_ms, (std::vector<double>{1, 2}));
  EXPECT_TRUE(row_from_json(to_json(round_of(1, 1, 1, "a"))).round_ms.empty());
}

TEST(Rounds, AMeanOfTimesIsAboveZeroHoweverNoisy) {
  crest::Samples noisy({0.001, 0.001, 0.001, 0.1});
  ASSERT_LT(noisy.mean_interval().low, 0);
  EXPECT_EQ(crest::mean_of(noisy).low, 0.001);
  EXPECT_GT(crest::rate(1, crest::mean_of(noisy)).x, 0);
  crest::Samples calm({1, 1.1, 1.2});
  EXPECT_EQ(crest::mean_of(calm).low, calm.mean_interval().low);
}
