// crest bench about a grid: its time, its
// table, and the distinguishable measurements.
#include "bench/bench_grid.h"

#include <gtest/gtest.h>

#include "bench/bench_report.h"
#include "contains.h"

namespace crest {
namespace {

using crest::test::contains;

using Json = nlohmann::ordered_json;

TEST(GridClock, CountsRunsOfEveryMeasurement) {
  BenchOptions o;
  o.samples = 10, o.warmup = 2;
  BenchTask small, large;
  small.recipe.batch = 1, large.recipe.batch = 4;
  double flops = palm_flops(small.recipe, BenchPhase::step);
  GridClock clock(o);
  double setup = clock.estimate({small}, 1e30);  // independent of the rate
  EXPECT_NEAR(clock.estimate({small, large}, flops), 2 * setup + 12 * (1 + 4), 1e-6) << "one second a small step";
  // Without --samples: until --max-seconds, at least 6 runs and at most 200.
  o.samples = 0, o.max_seconds = 20;
  EXPECT_NEAR(clock.estimate({small}, flops), setup + 2 + 20, 1e-6);
  EXPECT_NEAR(clock.estimate({small}, flops / 10), setup + 20 + 60, 1e-6);
  EXPECT_NEAR(clock.estimate({small}, flops * 1000), setup + 0.202, 1e-6);
}

TEST(GridClock, LearnsFromTheMeasurementsThatWereMeasured) {
  BenchOptions o;
  o.samples = 10, o.warmup = 0;
  BenchTask task;
  std::vector<BenchTask> tasks(5, task);
  GridClock clock(o);
  EXPECT_LT(clock.left(tasks, 0), 0) << "nothing is known yet";
  clock.measured(task, 0, 1);
  EXPECT_LT(clock.left(tasks, 1), 0) << "a cell that did not fit says nothing";
  clock.measured(task, 0.5, 20);
  EXPECT_NEAR(clock.left(tasks, 2), 60, 1e-6) << "three cells like the one that took 20 s";
  EXPECT_NEAR(clock.left(tasks, 5), 0, 1e-9);
}

// A row as crest bench prints it: 1000 tokens a step, eleven samples evenly over `ms` +- `spread`.
Json row(int batch, double ms, double spread = 0) {
  std::vector<double> samples;
  for (int i = -5; i <= 5; ++i) samples.push_back(ms + spread * i / 5);
  return {{"recipe", {{"model", "m"}, {"batch", batch}, {"seq", 32}, {"precision", "fp32"}}},
          {"device", "d"},
          {"phase", "step"},
          {"step_ms_median", ms},
          {"step_ms_min", ms},
          {"step_ms_max", ms},
          {"samples", samples.size()},
          {"samples_ms", samples},
          {"throttled", 0},
          {"tokens_per_second", 1e6 / ms},
          {"model_tflops", 1.0},
          {"mfu", nullptr},
          {"flops_convention", "words"},
          {"memory", {{"planned_bytes", 1024}}}};
}

Json with_floor(Json row, double floor) {
  row["known_noise_floor"] = {{"relative", floor}, {"run", 1}, {"when", "2026-01-31"}};
  return row;
}

TEST(BenchTable, PowerIsAColumnWhereItIsKnown) {
  std::string without = text_of({row(1, 100)}, false);
  EXPECT_FALSE(contains(without, "J/token")) << without;
  Json known = row(1, 100), unknown = row(2, 100);
  known["power_w"] = 512.4, known["joules_per_token"] = 0.05124;
  unknown["power_w"] = nullptr, unknown["joules_per_token"] = nullptr;
  std::string with = text_of({known, unknown}, false);
  for (const char* said : {"W  J/token", " 512  ", "0.0512"}) EXPECT_TRUE(contains(with, said)) << said << "\n" << with;
}

TEST(BenchRow, JoulesATokenArePowerOverTokensASecond) {
  BenchRow r;
  r.seconds = Samples({0.5, 0.5}), r.tokens = 1000;
  EXPECT_TRUE(to_json(r)["power_w"].is_null());
  EXPECT_TRUE(to_json(r)["joules_per_token"].is_null());
  r.watts = 400;
  EXPECT_DOUBLE_EQ(to_json(r)["power_w"].get<double>(), 400);
  EXPECT_DOUBLE_EQ(to_json(r)["joules_per_token"].get<double>(), 0.2);
}

TEST(GridConclusions, ADifferenceBelowTheFloorCannotBeTold) {
  // 2% apart, floors of 1% and 3%: the larger one counts.
  auto said = conclusions({with_floor(row(1, 102), 0.01), with_floor(row(2, 100), 0.03)});
  ASSERT_EQ(said.size(), 1u);
  EXPECT_TRUE(contains(said[0], "the top 2 are within noise: batch 2 and batch 1 (")) << said[0];
  EXPECT_TRUE(contains(said[0], "2.0% apart; 95% interval 2.0% to 2.0%; noise floor 3.0%")) << said[0];
  said = conclusions({with_floor(row(1, 102), 0.01), row(2, 100)});
  EXPECT_TRUE(contains(said[0], "batch 2 has the most tokens/s, 2.0% more than batch 1")) << said[0];
}

TEST(GridConclusions, IntervalsDecideAboveAnAssumedFloor) {
  auto said = conclusions({row(1, 100, 1), row(2, 103, 1)});
  EXPECT_TRUE(contains(said[0], "batch 1 has the most")) << said[0];
  EXPECT_TRUE(contains(said[0], "noise floor 1.0%, assumed")) << said[0];
  said = conclusions({row(1, 100, 9), row(2, 103, 9), row(4, 103.5, 9), row(8, 200, 2)});
  EXPECT_TRUE(contains(said[0], "the top 3 are within noise: batch 1, batch 2 and 1 more")) << said[0];
}

TEST(GridConclusions, TwoRoundsSayWhatTheMachineMovedBy) {
  auto twice = [](Json row, double first, double second) {
    row["round_ms"] = {first, second};
    return row;
  };
  // 8% apart, while the same measurement was 10% apart in its two rounds.
  auto said = conclusions({twice(row(1, 108, 1), 113, 103), twice(row(2, 100, 1), 95, 105)});
  EXPECT_TRUE(contains(said[0], "no clear winner; the top 2 are within noise")) << said[0];
  EXPECT_TRUE(contains(said[0], "from the two rounds of the recipes")) << said[0];
  said = conclusions({twice(row(1, 108, 1), 108.1, 107.9), twice(row(2, 100, 1), 100, 100.1)});
  EXPECT_TRUE(contains(said[0], "batch 2 has the most")) << said[0];
}

TEST(GridConclusions, BusyMachinesTellNothing) {
  auto with_load = [](Json row, double cpus) {
    row["other_load"] = cpus;
    return row;
  };
  for (auto [first, second] : {std::pair{0.5, 0.0}, {0.0, 0.5}}) {
    auto said = conclusions({with_load(row(1, 150, 1), first), with_load(row(2, 100, 1), second)});
    EXPECT_TRUE(contains(said[0], "no clear winner; the top 2 are not comparable: batch 2 and batch 1")) << said[0];
    EXPECT_TRUE(contains(said[0], "other processes kept up to 0.5 CPUs busy")) << said[0];
  }
  auto said = conclusions({with_load(row(1, 150, 1), 0.1), with_load(row(2, 100, 1), 0)});
  EXPECT_TRUE(contains(said[0], "batch 2 has the most")) << said[0];
}

TEST(GridConclusions, FewSamplesTellLargeDifferencesOnly) {
  Json few = row(2, 108);
  few["samples_ms"] = {108.0, 108.0};
  auto said = conclusions({row(1, 100, 1), few});
  EXPECT_TRUE(contains(said[0], "no clear winner") && contains(said[0], "too few samples")) << said[0];
  few = row(2, 150);
  few.erase("samples_ms");  // a row of an older store
  said = conclusions({row(1, 100, 1), few});
  EXPECT_TRUE(contains(said[0], "batch 1 has the most")) << said[0];
}

TEST(GridConclusions, OnlyMeasurementsWithTimesOfAPhaseAreCompared) {
  Json oom = {{"recipe", row(9, 1)["recipe"]},
              {"device", "d"},
              {"phase", "step"},
              {"error", "out_of_memory"},
              {"memory", {{"planned_bytes", 1}}}};
  EXPECT_TRUE(conclusions({row(1, 100), oom}).empty());
  Json forward = row(2, 10);
  forward["phase"] = "forward";
  EXPECT_TRUE(conclusions({row(1, 100), forward}).empty());
  std::string table = text_of({row(1, 100), oom}, false);
  EXPECT_TRUE(contains(table, "out of memory")) << table;
}

TEST(BenchTable, ShowsWhatDiffersAndWhatWasSlowedDown) {
  Json a = row(1, 100), b = row(1, 90);
  a["recipe"]["policy"] = "pure", b["recipe"]["policy"] = "autocast";
  std::string same = text_of({a, a}, false), other = text_of({a, b}, false);
  EXPECT_FALSE(contains(same, "policy"));
  EXPECT_TRUE(contains(other, "autocast")) << other;
  EXPECT_FALSE(contains(other, "throttled"));
  b["throttled"] = 3, b["throttle_reasons"] = {"power_cap"};
  EXPECT_TRUE(contains(text_of({a, b}, false), "was throttled (power_cap)"));
  b["device"] = b["flops_convention"] = "\x1b[31mred";
  EXPECT_FALSE(contains(text_of({a, b}, false), "\x1b")) << "a row may come from a database of somebody else";
}

}  // namespace
}  // namespace crest
