// What a plan says of 8-bit matmuls with scales of blocks: the library multiplies them on compute
// capability 9.0, and elsewhere their numbers are multiplied in bf16, at its rate.
#include <gtest/gtest.h>

#include <set>

#include "device/data_sheet.h"
#include "plan/compile.h"
#include "predict/predicted_step.h"

using namespace crest;

TEST(Fp8Blocks, AreMultipliedAtTheRateOfTheKernelThatRuns) {
  auto rates = [](const char* device, const char* recipe) {
    Recipe r;
    r.model = load_model_config("gpt2-124M");
    r.model.layers = 1, r.model.vocab = 300;
    r.batch = 2, r.precision = "fp8", r.levers["fp8-recipe"] = recipe;
    SessionUse use;
    use.train = true;
    CompiledSession session = compile(r, described_device(find_data_sheet(device)), session_programs(r, use));
    std::set<std::string> found;
    for (auto& row : step_rows(session).instrs)
      if (row.op == "linear_fp8") found.insert(row.arithmetic);
    return found;
  };
  for (const char* device : {"h100", "h200", "b200", "l40s"}) {
    EXPECT_EQ(rates(device, "tensor"), std::set<std::string>{"fp8"}) << device;
    EXPECT_EQ(rates(device, "block"), std::set<std::string>{device[0] == 'h' ? "fp8" : "bf16"}) << device;
  }
}
