// Conclusions of crest comm from known times.
#include "bench/comm_report.h"

#include <gtest/gtest.h>

namespace crest::test {

namespace {

using Sizes = std::vector<int64_t>;

// All-reduce of two ranks: bus bandwidth is algorithm bandwidth. 1 GB/s and 1 ms; `spread`: of the
// largest size.
CommGroup known(double spread = 0.001) {
  CommGroup g;
  g.backend = "gloo", g.ranks = 2, g.link_measured = 1e9;
  for (double bytes : {1e6, 1e7, 1e8}) {
    CollectiveTime t;
    t.bytes = int64_t(bytes);
    for (int i = -4; i <= 4; ++i) t.seconds.add((1e-3 + bytes / 1e9) * (1 + i * spread / 4));
    g.times.push_back(t);
  }
  return g;
}

}  // namespace

TEST(CommReport, AVerdictIsTheShareOfTheLinkAtTheLargestSize) {
  CommGroup g = known();
  CommVerdict v = judge(g);
  EXPECT_EQ(v.verdict, "reaches");
  EXPECT_NEAR(v.share, 1 / 1.01, 1e-9);
  g.link_measured = 1.5e9;
  EXPECT_EQ(judge(g).verdict, "below");
  g.link_expected = 10e9, g.link_source = "a data sheet";
  v = judge(g);
  EXPECT_EQ(v.verdict, "far_below");
  EXPECT_NE(
      v.sentence.find("all-reduce stays far below the link rate: bus bandwidth 990.1 MB/s at 100.0 MB is 10% of 10.00 "
                      "GB/s (a data sheet)."),
      std::string::npos)
      << v.sentence;
}

TEST(CommReport, TimesThatSpreadAcrossALimitTellNothing) {
  CommGroup g = known(0.5);
  g.link_measured = 1.2e9;
  EXPECT_EQ(judge(g).verdict, "cannot_tell");
  g = known();
  g.times.back().seconds = Samples({0.1, 0.1, 0.1});
  EXPECT_EQ(judge(g).verdict, "cannot_tell");
  g = known();
  g.ranks = 1;
  EXPECT_EQ(judge(g).verdict, "cannot_tell");
}

TEST(CommReport, TheLoadOfOthersIsSaid) {
  CommGroup g = known();
  g.other_load = 0.1;
  EXPECT_EQ(judge(g).sentence.find("Other processes"), std::string::npos);
  g.other_load = 1.5;
  EXPECT_NE(judge(g).sentence.find("Other processes kept 1.5 CPUs busy"), std::string::npos);
}

TEST(CommReport, TextAndJsonHaveTheFit) {
  CommGroup g = known();
  std::string text = group_text(g, false);
  EXPECT_NE(text.find(" start-up + 1 s per GB (bus bandwidth 1.00 GB/s); largest deviation 0%"), std::string::npos)
      << text;
  auto j = to_json(g);
  EXPECT_NEAR(j["fit"]["startup_ms"], 1, 1e-9);
  EXPECT_NEAR(j["fit"]["seconds_per_gb"], 1, 1e-9);
  EXPECT_EQ(rows_to_json(g).size(), 3u);
  g.times.resize(1);
  EXPECT_TRUE(to_json(g)["fit"].is_null());
}

TEST(CommSizes, RangesDoubleOrQuadrupleAndEndWithTheLast) {
  EXPECT_EQ(parse_sizes("1MB..8MB"), (Sizes{1'000'000, 2'000'000, 4'000'000, 8'000'000}));
  EXPECT_EQ(parse_sizes("1KiB..10KiB:x4"), (Sizes{1024, 4096, 10240}));
  EXPECT_EQ(parse_sizes("4..4"), (Sizes{4}));
  EXPECT_EQ(parse_sizes("3,1KB..2KB,3"), (Sizes{3, 1000, 2000}));
  EXPECT_EQ(parse_sizes("1..8e18").size(), 64u);
  EXPECT_EQ(parse_ranks("4,2,2"), (std::vector<int>{2, 4}));
}

TEST(CommSizes, TheLargestThatFitsIsNamed) {
  CommPlan plan;
  plan.collectives = {Collective::all_gather};
  plan.ranks = {4}, plan.world = 4;
  plan.sizes = {1'000'000'000};
  // 4 ranks x (1 GB + a quarter) and 64 MiB each
  EXPECT_NO_THROW(check_sizes_fit(plan, 4, 5'000'000'000 + 4 * (64 << 20) + 1'000'000));
  try {
    check_sizes_fit(plan, 4, 4'900'000'000);
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Exit::does_not_fit);
    EXPECT_NE(e.advice().find("Up to 883.40 MiB"), std::string::npos) << e.advice();
  }
}

}  // namespace crest::test
