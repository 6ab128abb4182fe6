// Plans of 8-bit matmuls with scales of blocks: the library multiplies them on compute capability
// 9.0; elsewhere their numbers are multiplied in bf16, at its rate. And of an update with quantized
// weights.
#include <gtest/gtest.h>

#include <set>

#include "device/data_sheet.h"
#include "plan/compile.h"
#include "predict/predicted_step.h"

using namespace crest;

namespace {

Profile rows_of(const char* device, const char* setting, const char* value) {
  Recipe r;
  r.model = load_model_config("gpt2-124M");
  r.model.layers = 1, r.model.vocab = 300;
  r.batch = 2, r.precision = "fp8", r.pass_settings[setting] = value;
  SessionUse use;
  use.train = use.update = true;
  return step_rows(compile(r, described_device(find_data_sheet(device)), session_programs(r, use)));
}

}  // namespace

TEST(Fp8Blocks, AreMultipliedAtTheRateOfTheKernelThatRuns) {
  auto rates = [](const char* device, const char* recipe) {
    std::set<std::string> found;
    for (auto& row : rows_of(device, "fp8-recipe", recipe).instrs)
      if (row.op == "linear_fp8") found.insert(row.arithmetic);
    return found;
  };
  for (const char* device : {"h100", "h200", "b200", "l40s"}) {
    EXPECT_EQ(rates(device, "tensor"), std::set<std::string>{"fp8"}) << device;
    EXPECT_EQ(rates(device, "block"), std::set<std::string>{device[0] == 'h' ? "fp8" : "bf16"}) << device;
  }
}

// One row, whatever its body has for each weight: the class also covers another model's update.
TEST(Fp8Weights, OfTheUpdateAreARowOfTheStep) {
  int rows = 0;
  for (auto& row : rows_of("h200", "fp8-weights", "update").instrs) {
    if (row.op != "fused_update") continue;
    ++rows;
    EXPECT_EQ(row.kernel, "cuda.fused_update.adamw");
    EXPECT_EQ(row.op_class, "optimizer");
    EXPECT_TRUE(row.parts.empty());
  }
  EXPECT_EQ(rows, 1);
}
