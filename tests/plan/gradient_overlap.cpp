// Where gradients of parameters have a stream of their own by default, and the memory for it.
#include <gtest/gtest.h>

#include <algorithm>

#include "device.h"
#include "device/data_sheet.h"
#include "plan/compile.h"
#include "plan/recipe_settings.h"
#include "program/op.h"

namespace crest::test {

namespace {

CompiledSession overlap_session(const Device& device, GivenSettings given) {
  Recipe r;
  given.try_emplace("model", std::vector<std::string>{"gpt2-124M"});
  given.try_emplace("precision", std::vector<std::string>{"bf16"});
  settings_of(r).apply(given);
  r = resolve(r, device);
  SessionUse use;
  use.train = use.update = true;
  return compile(r, device, session_programs(r, use));
}

// Instructions on the stream; all must be of the backward half.
int64_t gradients_in(const CompiledSession& s) {
  int64_t count = 0;
  for (auto& c : s.programs)
    for (auto& instr : c.program.code) {
      if (instr.stream != Stream::gradients) continue;
      ++count;
      EXPECT_TRUE(instr.phase == Phase::backward || instr.phase == Phase::recompute) << instr.op->name;
    }
  return count;
}

}  // namespace

TEST(GradientOverlap, IsTheDefaultOfSmallStepsOnOneGpu) {
  const Device h200 = described_device(find_data_sheet("h200"));
  for (const char* batch : {"1", "4"})
    EXPECT_GT(gradients_in(overlap_session(h200, {{"batch", {batch}}})), 50) << batch;
  EXPECT_EQ(gradients_in(overlap_session(h200, {{"batch", {"8"}}})), 0);
  EXPECT_GT(gradients_in(overlap_session(h200, {{"batch", {"8"}}, {"gradient-overlap", {"on"}}})), 50);
  EXPECT_EQ(gradients_in(overlap_session(h200, {{"batch", {"1"}}, {"gradient-overlap", {"off"}}})), 0);
  EXPECT_EQ(gradients_in(overlap_session(h200, {{"batch", {"1"}}, {"ranks", {"2"}}})), 0);
  EXPECT_EQ(gradients_in(overlap_session(this_cpu(2), {{"model", {"nano"}}, {"gradient-overlap", {"on"}}})), 0);
}

// A workspace of 32 MiB for each gradient in flight would take 160 MiB.
TEST(GradientOverlap, TakesLittleMemory) {
  const Device h200 = described_device(find_data_sheet("h200"));
  const int64_t off = overlap_session(h200, {{"batch", {"1"}}, {"gradient-overlap", {"off"}}}).planned_bytes();
  const int64_t on = overlap_session(h200, {{"batch", {"1"}}}).planned_bytes();
  EXPECT_GT(on, off);
  EXPECT_LT(on - off, int64_t(80) << 20);
}

}  // namespace crest::test
