// The time of an update with its state in host memory.
#include "predict/transfer_time.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "bench/phase_runner.h"
#include "plan/recipe_settings.h"
#include "predict/floor_time.h"
#include "predict/planned_time.h"

namespace crest::test {

namespace {

CompiledSession session(const DataSheet& sheet, GivenSettings given) {
  Device d = described_device(sheet);
  Recipe r;
  settings_of(r).apply(given);
  return compile_phase(resolve(r, d), d, BenchPhase::step, {.verify = false});
}

const GivenSettings plain = {{"model", {"gpt2-124M"}}, {"precision", {"bf16"}}, {"batch", {"4"}}};
const GivenSettings offloaded = {
    {"model", {"gpt2-124M"}}, {"precision", {"bf16"}}, {"batch", {"4"}}, {"offload", {"optimizer"}}};

// Bytes of state moved one way by an update.
double moved(const CompiledSession& s) {
  double bytes = 0;
  for (auto& row : step_rows(s).instrs)
    if (row.op == "copy_in") bytes += row.bytes;
  return bytes;
}

}  // namespace

TEST(TransferTime, IsThatOfTheLinkInTheLongerDirection) {
  DataSheet sheet = find_data_sheet("h100");
  CompiledSession s = session(sheet, offloaded);
  EXPECT_NEAR(moved(s), double(s.host_bytes), 1e-3 * double(s.host_bytes)) << "all of it, once a step";
  FloorTime with = floor_time(s, sheet), without = floor_time(session(sheet, plain), sheet);
  EXPECT_EQ(without.transfers_ms, 0);
  EXPECT_EQ(with.host_link.per_second, reached_share * sheet.host_link_bandwidth / 2);
  double one_way = 1e3 * moved(s) / (both_ways_share * with.host_link.per_second), updates = 0;
  for (auto& row : with.profile.instrs) updates += row.op_class == "optimizer" ? row.ms : 0;
  EXPECT_GT(with.transfers_ms, one_way - updates) << "the last piece returns alone";
  EXPECT_LT(with.transfers_ms, 1.02 * one_way - updates) << "the rows of updates have their time";
  // Rows add up to the step; pieces of the update have more calls than the update.
  double rows = 0;
  for (auto& row : with.profile.instrs) rows += row.ms;
  EXPECT_NEAR(rows / with.ms, 1, 1e-9);
  EXPECT_NEAR(with.ms - with.transfers_ms, without.ms, 0.05 * without.ms);
  EXPECT_NE(text_of(with).find("55.17 GB/s (PCIe 5.0 x16)"), std::string::npos) << text_of(with);
  EXPECT_EQ(text_of(without).find("state moves"), std::string::npos);
  EXPECT_EQ(to_json(with)["transfers_ms"], with.transfers_ms);
}

TEST(TransferTime, HasAStatedDefault) {
  DataSheet sheet = find_data_sheet("h100");
  sheet.host_link.clear(), sheet.host_link_bandwidth = 0;
  CompiledSession s = session(sheet, offloaded);
  FloorTime t = floor_time(s, sheet);
  EXPECT_EQ(t.host_link.per_second, reached_share * usual_host_link);
  EXPECT_NE(text_of(t).find("assumed, as PCIe 4.0 x16"), std::string::npos) << text_of(t);
  EXPECT_GT(t.transfers_ms, 1.5 * floor_time(s, find_data_sheet("h100")).transfers_ms);
}

// A calibration of the device: the step of the plain recipe, and the transfers on top.
TEST(TransferTime, GoesOnTopOfACalibration) {
  DataSheet sheet = find_data_sheet("h100");
  CompiledSession s = session(sheet, offloaded);
  std::optional<Calibration> calibration = find_calibration("", s.device);
  ASSERT_TRUE(calibration.has_value());
  PlannedTime with = planned_time(s, *calibration, &sheet),
              without = planned_time(session(sheet, plain), *calibration, &sheet);
  EXPECT_NEAR(with.ms - with.transfers_ms, without.ms, 0.05 * without.ms);
  EXPECT_GT(with.transfers_ms, 10);
  EXPECT_LT(with.low_ms, with.ms);
  EXPECT_GT(with.high_ms, with.ms);
  auto document = profile_document(with, s, *calibration);
  bool listed = false;
  for (auto& rate : document["rates"]) listed |= rate["name"] == "host_link";
  EXPECT_TRUE(listed);
}

// What computation hides is not counted, and it cannot hide more than its own time.
TEST(TransferTime, OfActivationsIsWhatComputationDoesNotHide) {
  DataSheet sheet = find_data_sheet("h100");
  auto with = [](const char* what) {
    GivenSettings given = plain;
    given["offload"] = {what};
    return given;
  };
  const FloorTime without = floor_time(session(sheet, plain), sheet);
  CompiledSession s = session(sheet, with("activations"));
  FloorTime t = floor_time(s, sheet);
  EXPECT_GT(moved(s), 100e6);
  EXPECT_EQ(moved(s), double(s.host_activations));
  EXPECT_LT(t.transfers_ms, 0.01 * without.ms);
  EXPECT_NE(text_of(t).find("activations move to the host and back at 55.17 GB/s"), std::string::npos) << text_of(t);
  s = session(sheet, with("activations=all"));
  t = floor_time(s, sheet);
  const double both_ways = 2e3 * moved(s) / t.host_link.per_second;
  EXPECT_GT(t.transfers_ms, std::max(0.0, both_ways - without.ms));
  EXPECT_LT(t.transfers_ms, both_ways);
  EXPECT_NEAR(t.ms - t.transfers_ms, without.ms, 0.05 * without.ms);
  double rows = 0;
  for (auto& row : t.profile.instrs) rows += row.ms;
  EXPECT_NEAR(rows / t.ms, 1, 1e-9);
  // With the optimizer's state, the two times add up.
  const double state = floor_time(session(sheet, offloaded), sheet).transfers_ms;
  const FloorTime sum = floor_time(session(sheet, with("optimizer+activations=all")), sheet);
  EXPECT_NEAR(sum.transfers_ms, t.transfers_ms + state, 1e-6 * sum.transfers_ms);
  EXPECT_NE(text_of(sum).find("state and activations move"), std::string::npos) << text_of(sum);
}

// A predicted profile is compared with one of the same phase.
TEST(PlannedTime, ProfilesNameTheirPhase) {
  DataSheet sheet = find_data_sheet("h100");
  Device d = described_device(sheet);
  std::optional<Calibration> calibration = find_calibration("", d);
  ASSERT_TRUE(calibration.has_value());
  Recipe r;
  settings_of(r).apply({{"model", {"nano"}}, {"precision", {"bf16"}}, {"batch", {"1"}}});
  for (BenchPhase phase : bench_phases()) {
    CompiledSession s = compile_phase(resolve(r, d), d, phase, {.verify = false});
    EXPECT_EQ(profile_document(planned_time(s, *calibration, &sheet), s, *calibration)["phase"], name(phase));
  }
}

// On a CPU both directions share its memory.
TEST(TransferTime, OnACpuIsTrafficOfItsMemory) {
  Recipe r;
  settings_of(r).apply({{"model", {"nano"}}, {"precision", {"fp32"}}, {"offload", {"optimizer"}}});
  Device cpu;
  cpu.threads = 2, cpu.isa = "avx2", cpu.name = "a CPU";
  CompiledSession s = compile_phase(resolve(r, cpu), cpu, BenchPhase::step, {.verify = false});
  PredictedStep step;
  set_work(step, s);
  HostLinkRate link = host_link_of(s, {{"bandwidth", 20e9, "measured"}}, nullptr);
  EXPECT_EQ(link.per_second, 10e9);
  set_transfers(step, s, link);
  EXPECT_NEAR(step.transfers_ms, 1e3 * 2 * moved(s) / 10e9, 1e-9);
  EXPECT_EQ(host_link_of(s, {{"host_link", 7e9, ""}, {"bandwidth", 20e9, ""}}, nullptr).per_second, 7e9) << "measured";
}

}  // namespace crest::test
