// Names, bus bandwidth, buffers and fits of collectives.
#include "comm/collective.h"

#include <gtest/gtest.h>

#include "comm/pattern.h"

namespace crest::test {

TEST(Collective, BusFactorsAreThoseOfNcclTests) {
  EXPECT_DOUBLE_EQ(bus_factor(Collective::all_reduce, 2), 1);
  EXPECT_DOUBLE_EQ(bus_factor(Collective::all_reduce, 4), 1.5);
  EXPECT_DOUBLE_EQ(bus_factor(Collective::all_reduce, 8), 1.75);
  EXPECT_DOUBLE_EQ(bus_factor(Collective::all_gather, 4), 0.75);
  EXPECT_DOUBLE_EQ(bus_factor(Collective::reduce_scatter, 8), 0.875);
  EXPECT_DOUBLE_EQ(bus_factor(Collective::broadcast, 8), 1);
  EXPECT_DOUBLE_EQ(bus_factor(Collective::all_to_all, 8), 0.875);
  EXPECT_DOUBLE_EQ(bus_factor(Collective::send_receive, 8), 1);
  EXPECT_DOUBLE_EQ(bus_factor(Collective::all_reduce, 1), 0);
}

TEST(Collective, NamesParseAndWrongOnesGetTheNearest) {
  for (Collective c : all_collectives) EXPECT_EQ(parse_collective(name(c)), c);
  try {
    parse_collective("allreduce");
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Exit::usage);
    EXPECT_NE(e.advice().find("Did you mean 'all-reduce'?"), std::string::npos) << e.advice();
  }
}

TEST(Collective, SizesAreRoundedToWholePartsOfEveryRank) {
  EXPECT_EQ(elements_for(Collective::all_reduce, 3, DType::f32, 1001), 250);
  EXPECT_EQ(elements_for(Collective::all_gather, 3, DType::f32, 1001), 249);
  EXPECT_EQ(elements_for(Collective::reduce_scatter, 4, DType::bf16, 7), 4);  // at least one each
  EXPECT_EQ(elements_for(Collective::broadcast, 4, DType::f64, 0), 1);
  EXPECT_EQ(buffer_bytes(Collective::all_gather, 4, DType::f32, 400), 1600 + 400);
  EXPECT_EQ(buffer_bytes(Collective::all_reduce, 4, DType::f32, 400), 1600);
  EXPECT_EQ(elements_for(Collective::all_to_all, 3, DType::f32, 1001), 249);
  EXPECT_EQ(buffer_bytes(Collective::all_to_all, 4, DType::f32, 400), 3200);
  EXPECT_EQ(buffer_bytes(Collective::send_receive, 4, DType::f32, 400), 3200);
}

TEST(Fit, FindsStartUpAndRateOfKnownNumbers) {
  std::vector<TransferPoint> points;
  for (double mb : {1, 2, 4, 64, 1024}) points.push_back({mb * 1e6, 0.25e-3 + mb * 1e6 * 0.5e-9});
  TransferFit f = fit_transfer(points);
  EXPECT_EQ(f.points, 5);
  EXPECT_NEAR(f.startup, 0.25e-3, 1e-12);
  EXPECT_NEAR(f.seconds_per_byte, 0.5e-9, 1e-18);
  EXPECT_LT(f.worst, 1e-9);
}

// Times are alternately 10% too high and too low. The fitted line stays within these errors, at
// small sizes too.
TEST(Fit, ErrorsCountRelativeToEachSize) {
  std::vector<TransferPoint> points;
  for (int i = 0; i < 10; ++i) {
    double bytes = double(1 << i) * 1e6;
    points.push_back({bytes, (1e-3 + bytes * 1e-9) * (i % 2 ? 1.1 : 0.9)});
  }
  TransferFit f = fit_transfer(points);
  EXPECT_NEAR(f.startup, 1e-3, 0.25e-3);
  EXPECT_NEAR(f.seconds_per_byte, 1e-9, 0.06e-9);
  EXPECT_GT(f.worst, 0.05);
  EXPECT_LT(f.worst, 0.2);
}

TEST(Fit, NeedsTwoSizes) {
  EXPECT_EQ(fit_transfer({}).points, 0);
  EXPECT_EQ(fit_transfer({{1e6, 1e-3}}).points, 0);
  EXPECT_EQ(fit_transfer({{1e6, 1e-3}, {1e6, 2e-3}}).points, 0);
}

TEST(Pattern, RanksAndPlacesDifferAndSumsStayExactInBf16) {
  int same_rank = 0, same_place = 0;
  for (int64_t i = 0; i < 251; ++i) {
    same_rank += pattern_value(0, i) == pattern_value(1, i);
    same_place += pattern_value(0, i) == pattern_value(0, i + 1);
    EXPECT_LE(std::abs(pattern_value(3, i)), 2);
  }
  EXPECT_LT(same_rank, 100);
  EXPECT_LT(same_place, 100);
  ExpectedResult all(Collective::all_reduce, 0, 128, 1000);
  for (int64_t i = 0; i < all.count(); ++i) EXPECT_LE(std::abs(all.at(i)), 256);
}

TEST(Pattern, ResultsOfARankAreItsPart) {
  ExpectedResult scatter(Collective::reduce_scatter, 2, 3, 300);
  EXPECT_EQ(scatter.count(), 100);
  EXPECT_EQ(scatter.at(5), pattern_value(0, 205) + pattern_value(1, 205) + pattern_value(2, 205));
  ExpectedResult gather(Collective::all_gather, 0, 3, 300);
  EXPECT_EQ(gather.at(205), pattern_value(2, 5));
  // Part 2 of rank 1's buffer, behind rank 0's part 2.
  ExpectedResult exchange(Collective::all_to_all, 2, 3, 300);
  EXPECT_EQ(exchange.count(), 300);
  EXPECT_EQ(exchange.at(107), pattern_value(1, 207));
  ExpectedResult next(Collective::send_receive, 0, 3, 300);
  EXPECT_EQ(next.count(), 300);
  EXPECT_EQ(next.at(7), pattern_value(2, 7));
}

}  // namespace crest::test
