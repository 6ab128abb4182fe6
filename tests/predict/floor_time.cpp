// Times of absent devices, against steps measured
// on them (docs/results/performance.md).
#include "predict/floor_time.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "bench/phase_runner.h"
#include "plan/recipe_settings.h"
#include "predict/planned_time.h"

namespace crest::test {

namespace {

FloorTime predicted(const std::string& device, GivenSettings given) {
  DataSheet sheet = find_data_sheet(device);
  Device d = described_device(sheet);
  Recipe r;
  given.try_emplace("precision", std::vector<std::string>{"bf16"});
  settings_of(r).apply(given);
  return floor_time(compile_phase(resolve(r, d), d, BenchPhase::step, {.verify = false}), sheet);
}

}  // namespace

TEST(FloorTime, IsNearStepsThatWereMeasured) {
  struct Row {
    const char *device, *model, *batch, *seq;
    double ms;
  };
  for (const Row& row : {Row{"h200", "gpt2-124M", "64", "1024", 102.38},
                         {"h200", "gpt2-124M", "1", "1024", 3.71},
                         {"h200", "gpt2-124M", "4", "16384", 247.1},
                         {"h200", "llama-1B", "4", "4096", 243.8},
                         // Not fitted:
                         {"h100", "gpt2-124M", "64", "1024", 106.24},
                         {"h100", "gpt2-124M", "4", "1024", 8.37},
                         {"h100", "gpt2-124M", "1", "1024", 4.29}}) {
    GivenSettings given = {{"model", {row.model}}, {"batch", {row.batch}}, {"seq", {row.seq}}};
    if (std::string(row.seq) == "16384") given["context"] = {row.seq};
    FloorTime t = predicted(row.device, given);
    std::string what = std::string(row.device) + " " + row.model + " " + row.batch;
    EXPECT_TRUE(t.known) << what;
    EXPECT_LE(t.low_ms, row.ms) << what;
    EXPECT_GE(t.high_ms, row.ms) << what;
    EXPECT_LT(t.high_ms / t.low_ms, 1.4) << what;
    EXPECT_LT(t.floor_ms, row.ms) << what;
    EXPECT_GE(t.tiled_ms, t.floor_ms) << what;
    double rows = 0;
    for (auto& instr : t.profile.instrs) rows += instr.ms;
    EXPECT_NEAR(rows / t.ms, 1, 1e-9) << what;
  }
}

TEST(FloorTime, SaysWhatItDoesNotKnow) {
  EXPECT_FALSE(predicted("h20", {{"model", {"nano"}}}).known) << "as new as an H200, but with another balance";
  FloorTime other = predicted("a100", {{"model", {"nano"}}});
  EXPECT_FALSE(other.known);
  EXPECT_GE(other.high_ms / other.ms, 1.99);
  EXPECT_NE(text_of(other).find("assumption"), std::string::npos);
  DataSheet sheet = find_data_sheet("h100");
  std::erase_if(sheet.peaks, [](auto& p) { return p.first == "tf32"; });
  Device d = described_device(sheet);
  Recipe r;
  settings_of(r).apply({{"model", {"nano"}}, {"precision", {"tf32"}}});
  FloorTime t = floor_time(compile_phase(resolve(r, d), d, BenchPhase::step, {.verify = false}), sheet);
  ASSERT_EQ(t.replaced.size(), 1u);
  EXPECT_NE(t.replaced[0].find("tf32"), std::string::npos);
  EXPECT_FALSE(t.known);
  EXPECT_EQ(to_json(t)["replaced_rates"].size(), 1u);
}

// Steps measured on two H100 (docs/results/h100/README.md). Nothing was fitted to them.
TEST(RankTime, IsNearStepsOfTwoRanksThatWereMeasured) {
  struct Row {
    const char *model, *batch, *shard;
    double ms;
  };
  DataSheet sheet = find_data_sheet("h100");
  Device d = described_device(sheet);
  std::optional<Calibration> calibration = find_calibration("", d);
  ASSERT_TRUE(calibration.has_value());
  for (const Row& row : {Row{"gpt2-124M", "64", "optimizer", 109.513},
                         {"gpt2-124M", "16", "optimizer", 30.210},
                         {"gpt2-124M", "4", "optimizer", 9.405},
                         {"gpt2-124M", "4", "none", 10.029},
                         {"gpt2-1558M", "16", "optimizer", 323.134},
                         {"gpt2-1558M", "16", "none", 333.988}}) {
    Recipe r;
    settings_of(r).apply({{"model", {row.model}},
                          {"batch", {row.batch}},
                          {"shard", {row.shard}},
                          {"precision", {"bf16"}},
                          {"ranks", {"2"}}});
    CompiledSession s = compile_phase(resolve(r, d), d, BenchPhase::step, {.verify = false});
    PlannedTime t = planned_time(s, *calibration, &sheet);
    std::string what = std::string(row.model) + " " + row.batch + " " + row.shard;
    EXPECT_NEAR(t.ms / row.ms, 1, 0.1) << what;
    EXPECT_GT(t.collectives_ms, 0.01 * t.ms) << what;
    EXPECT_EQ(t.tokens, 2 * r.batch * 1024) << what;
  }
}

// Sent bytes decide, not a kernel's reads: half as much in bf16; an accumulator is not sent.
TEST(RankTime, CountsWhatIsSent) {
  DataSheet sheet = find_data_sheet("h100");
  Device d = described_device(sheet);
  auto collectives = [&](const GivenSettings& more, int64_t accumulation = 1) {
    Recipe r;
    settings_of(r).apply({{"model", {"gpt2-124M"}}, {"batch", {"1"}}, {"seq", {"64"}}, {"ranks", {"2"}}});
    settings_of(r).apply(more);
    r.grad_accumulation = accumulation;
    const FloorTime t = floor_time(compile_phase(resolve(r, d), d, BenchPhase::step, {.verify = false}), sheet);
    return t.collectives_ms + t.hidden_collectives_ms;
  };
  GivenSettings flat = {{"precision", {"tf32"}}, {"reduce", {"flat"}}, {"comm-dtype", {"fp32"}}}, half = flat;
  half["comm-dtype"] = {"bf16"};
  EXPECT_NEAR(collectives(half) / collectives(flat), 0.5, 0.05);
  // By NCCL: copy engines also add what arrives.
  GivenSettings gradients = {{"precision", {"bf16"}},
                             {"shard", {"gradients"}},
                             {"kernel", {"all_gather=*.communicator", "reduce_scatter=*.communicator"}}};
  // Another micro step scatters once more, in fp32; a step also gathers the weights, in bf16.
  double one = collectives(gradients, 1);
  EXPECT_NEAR((collectives(gradients, 2) - one) / one, 4.0 / (4 + 2), 0.05);
}

}  // namespace crest::test
