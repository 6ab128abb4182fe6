#include "plan/step_flops.h"

#include <gtest/gtest.h>

#include "device/find.h"
#include "passes/tiny.h"
#include "program/op.h"

using namespace crest;
using namespace crest::test;

namespace {

CompiledSession step_session(int64_t micro_steps, int ranks) {
  Recipe r = tiny_recipe(false);
  r.grad_accumulation = micro_steps, r.data_parallel = ranks;
  SessionUse use;
  use.train = use.update = use.validation = true;
  return compile(r, find_device("cpu", 2), session_programs(r, use));
}

}  // namespace

TEST(StepFlops, AreThoseOfTheCallsOfAStep) {
  for (int ranks : {1, 2})
    for (int64_t micro_steps : {1, 2, 3, 7}) {
      CompiledSession s = step_session(micro_steps, ranks);
      double sum = 0;
      for (auto& call : training_step(s)) {
        const Program& p = s.programs[size_t(call.segment)].program;
        for (auto& instr : p.code) sum += instr.op->cost(p, instr).flops;
      }
      EXPECT_DOUBLE_EQ(executed_flops(s), sum) << micro_steps << " micro steps, " << ranks << " ranks";
    }
}

// The maximum of --grad-accumulation: a list of the calls would need 16 GB.
TEST(StepFlops, TakeNoLongerForManyMicroSteps) {
  double few = executed_flops(step_session(1000, 1)), more = executed_flops(step_session(1001, 1));
  double many = executed_flops(step_session(1'000'000'000, 1));
  EXPECT_NEAR(many / (few + (more - few) * (1e9 - 1000)), 1, 1e-9);
}
