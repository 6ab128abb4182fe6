// Times of collectives between ranks: measured ones, and their time in a step.
#include "predict/rank_time.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "bench/phase_runner.h"
#include "plan/recipe_settings.h"
#include "predict/planned_time.h"
#include "predict/step_time.h"
#include "profile/overlap.h"

namespace crest::test {

namespace {

CollectiveTable table(Collective c, int ranks, double start, double per_byte, const char* dtype = "fp32") {
  CollectiveTable t;
  t.collective = c, t.ranks = ranks, t.dtype = dtype;
  t.library = "nccl 2.28.9", t.date = "2026-11-25T12:00:00Z", t.crest_version = "0.1";
  for (double bytes : {8.0, 1e6, 1e8}) t.points.push_back({bytes, start + per_byte * bytes});
  return t;
}

// Every collective takes 1 ms and so much a byte of its buffer.
CollectiveTimes times(int ranks, double per_byte) {
  CollectiveTimes all;
  for (Collective c : step_collectives) all.add(table(c, ranks, 1e-3, per_byte));
  return all;
}

CompiledSession rank_session(const std::string& ranks, const std::string& shard) {
  Device d = described_device(find_data_sheet("h100"));
  Recipe r;
  settings_of(r).apply({{"model", {"gpt2-124M"}},
                        {"batch", {"1"}},
                        {"seq", {"64"}},
                        {"precision", {"bf16"}},
                        {"shard", {shard}},
                        {"ranks", {ranks}}});
  return compile_phase(resolve(r, d), d, BenchPhase::step, {.verify = false});
}

}  // namespace

TEST(CollectiveTable, IsALineBetweenSizes) {
  CollectiveTable t;
  t.points = {{8, 1}, {108, 2}, {208, 4}};
  EXPECT_DOUBLE_EQ(t.seconds(1), 1) << "less than the smallest is no faster";
  EXPECT_DOUBLE_EQ(t.seconds(58), 1.5);
  EXPECT_DOUBLE_EQ(t.seconds(158), 3);
  EXPECT_DOUBLE_EQ(t.seconds(408), 8) << "beyond the largest: as between the last two";
  t.points = {{8, 1}, {108, 3}, {208, 2}};
  EXPECT_DOUBLE_EQ(t.seconds(158), 3) << "a larger size does not take less";
  EXPECT_DOUBLE_EQ(t.seconds(408), 3) << "beyond the largest: the mean slope, where the last is less";
}

TEST(CollectiveTimes, FindsTheNearest) {
  CollectiveTimes all = times(2, 1e-9);
  EXPECT_TRUE(all.covers(2, false));
  EXPECT_FALSE(all.covers(4, false));
  EXPECT_TRUE(all.covers(4, true));
  all.add(table(Collective::all_reduce, 8, 1, 1));
  EXPECT_EQ(all.find(Collective::all_reduce, 4, "fp32")->ranks, 8) << "the larger of two";
  EXPECT_EQ(all.find(Collective::all_reduce, 3, "fp32")->ranks, 2);
  all.add(table(Collective::all_reduce, 8, 1, 1, "bf16"));
  EXPECT_EQ(all.find(Collective::all_reduce, 8, "bf16")->dtype, "bf16");
  EXPECT_EQ(all.find(Collective::all_reduce, 8, "fp16")->ranks, 8) << "of another dtype rather than none";
  size_t n = all.tables().size();
  all.add(table(Collective::all_reduce, 8, 2, 1));
  EXPECT_EQ(all.tables().size(), n) << "the new one is in place of the old one";
  EXPECT_EQ(CollectiveTimes().find(Collective::all_gather, 2, "fp32"), nullptr);
}

TEST(CollectiveTimes, SurviveAFileAndRefuseABadOne) {
  CollectiveTimes all = times(2, 1e-9);
  auto json = all.to_json();
  EXPECT_EQ(CollectiveTimes::from_json(json, "x").to_json(), json);
  auto refused = [&](const char* pointer, const nlohmann::ordered_json& value) {
    auto bad = json;
    bad[nlohmann::ordered_json::json_pointer(pointer)] = value;
    EXPECT_THROW(CollectiveTimes::from_json(bad, "x"), Error) << pointer << " " << value;
  };
  refused("/0", 1);
  refused("/0/collective", "broadcast");
  refused("/0/ranks", 1);
  refused("/0/ranks", "two");
  refused("/0/library", 2);
  refused("/0/date", "");
  refused("/0/bytes_and_ms", {1, 2});
  refused("/0/bytes_and_ms/0", {1, 2, 3});
  refused("/0/bytes_and_ms/0/0", 1e9);  // not ascending
  refused("/0/bytes_and_ms/1/1", 0);    // no time
  refused("/0/bytes_and_ms/1/1", "abc");
  EXPECT_THROW(CollectiveTimes::from_json({{"a", 1}}, "x"), Error);
}

// The step's collectives, counted by hand: a start each, and their bytes.
TEST(RankTimes, AreThoseOfTheTable) {
  constexpr double per_byte = 1e-9;
  CollectiveTimes measured = times(2, per_byte);
  DataSheet sheet = find_data_sheet("h100");
  CompiledSession s = rank_session("2", "optimizer");
  RankTimes by_table(s, &measured, &sheet), by_sheet(s, nullptr, &sheet);
  ASSERT_TRUE(by_table.possible());
  EXPECT_TRUE(by_table.source().measured);
  EXPECT_FALSE(by_sheet.source().measured);
  double sum = 0, expected = 0, sheets = 0;
  int collectives = 0;
  for (auto& row : step_rows(s).instrs) {
    if (!communicates(row)) continue;
    ++collectives;
    sum += by_table.ms(row), sheets += by_sheet.ms(row);
    const Program& p = s.programs[size_t(s.find(row.program))].program;
    const Instr& i = p.code[size_t(row.index)];
    double bytes = 0;
    if (row.op == "all_gather")
      bytes = double(p.at(i.out[0]).bytes());
    else if (row.op == "reduce_scatter")
      bytes = double(p.at(i.in[0]).bytes());
    else
      for (ValueId v : i.in) bytes += double(p.at(v).bytes());
    expected += row.calls * 1e3 * (1e-3 + per_byte * std::max(8.0, bytes));
  }
  EXPECT_GE(collectives, 4) << "gradients and weights, loss and norm";
  EXPECT_NEAR(sum / expected, 1, 1e-6);
  EXPECT_GT(std::abs(sheets / sum - 1), 0.1);
  Calibration c = *find_calibration("", s.device);
  EXPECT_TRUE(c.collectives.covers(2, false)) << "those of two H100 come with Crest";
  c.collectives = {};
  EXPECT_NEAR(planned_time(s, c, &sheet).collectives_ms / sheets, 1, 1e-9);
  c.collectives = measured;
  PlannedTime t = planned_time(s, c, &sheet);
  EXPECT_NEAR(t.collectives_ms / sum, 1, 1e-9);
  EXPECT_NE(text_of(t, c).find("as measured between 2 ranks (nccl 2.28.9, 2026-11-25); none"), std::string::npos)
      << text_of(t, c);
  EXPECT_EQ(to_json(t, c)["collectives"]["source"], "measured");
}

// Eight ranks, measurements of two ranks only: scaled by the bytes sent by each, with a wider
// range.
TEST(RankTimes, AreScaledToOtherRanks) {
  constexpr double per_byte = 1e-9;
  CollectiveTimes measured = times(2, per_byte);
  CompiledSession s = rank_session("8", "none");
  RankTimes eight(s, &measured, nullptr);
  ASSERT_TRUE(eight.possible());
  EXPECT_GT(eight.source().factor, RankTimes(rank_session("2", "none"), &measured, nullptr).source().factor);
  const ProfileInstr* largest = nullptr;
  Profile rows = step_rows(s);
  for (auto& row : rows.instrs)
    if (communicates(row) && (!largest || row.bytes > largest->bytes)) largest = &row;
  const Program& p = s.programs[size_t(s.find(largest->program))].program;
  double bytes = 0;
  for (ValueId v : p.code[size_t(largest->index)].in) bytes += double(p.at(v).bytes());
  // A ring of eight sends 2 x 7/8 of the bytes, one of two 2 x 1/2.
  EXPECT_NEAR(eight.ms(*largest) / (1e3 * (1e-3 + per_byte * bytes * 7 / 8 * 2)), 1, 0.01);
  // Ranks of a CPU share it: only measured numbers of ranks are predicted.
  CompiledSession cpu = rank_session("8", "none");
  cpu.device.kind = "cpu";
  EXPECT_FALSE(RankTimes(cpu, &measured, nullptr).possible());
  EXPECT_FALSE(RankTimes(s, nullptr, nullptr).possible());
}

}  // namespace crest::test
