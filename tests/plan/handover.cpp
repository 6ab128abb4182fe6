// A Program of a session expects in memory exactly the values left by an earlier Program.
#include "plan/handover.h"

#include <gtest/gtest.h>

#include "contains.h"
#include "core/error.h"
#include "device.h"
#include "passes/tiny.h"

using namespace crest;
using namespace crest::test;

namespace {

CompiledSession session(const std::string& shard, int64_t micro_steps = 1, const std::string& gather = "update") {
  Recipe r = tiny_recipe();
  r.data_parallel = 2, r.grad_accumulation = micro_steps, r.fusion = "on";
  r.pass_settings = {{"shard", shard}, {"reduce", "bucket"}, {"bucket", "500B"}, {"gather", gather}};
  SessionUse use;
  use.train = use.update = use.validation = true;
  return compile(r, this_cpu(1), session_programs(r, use));
}

Program& program(CompiledSession& s, const char* name) { return s.programs[size_t(s.find(name))].program; }

std::string problem_between(const CompiledSession& s) {
  try {
    verify_handover(s);
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

}  // namespace

// Including caches of heads shared by ranks.
TEST(Handover, TensorRanksTrainAndSample) {
  Recipe r = tensor_recipe(true);
  r.data_parallel = 2, r.mesh = {{Axis::tensor, 2}}, r.fusion = "on", r.batch = 1;
  SessionUse use;
  use.train = use.update = use.validation = use.sampling = true;
  use.cache_length = 4, use.prefill = 4;
  CompiledSession s = compile(r, this_cpu(1), session_programs(r, use));
  EXPECT_EQ(problem_between(s), "");
  program(s, "train") = program(s, "validation");  // validation leaves no gradients
  EXPECT_TRUE(contains(problem_between(s), "which no program has left")) << problem_between(s);
}

// To be printed, for example.
TEST(Handover, AProgramAloneIsNoMistake) {
  Recipe r = tensor_recipe(false);
  r.data_parallel = 2, r.grad_accumulation = 3;
  SessionUse use;
  use.train = use.update = true;
  for (const ProgramSpec& spec : session_programs(r, use))
    EXPECT_EQ(problem_between(compile(r, this_cpu(1), {spec}, {.verify = false})), "") << spec.name;
}

// Each of these Programs is right by itself.
TEST(Handover, AnUpdateThatGathersNothingIsRefused) {
  CompiledSession s = session("optimizer"), ahead = session("optimizer", 1, "forward");
  program(s, "update") = program(ahead, "update");
  const std::string said = problem_between(s);
  EXPECT_TRUE(contains(said,
                       "program update leaves %wte.weight of %weights.decay absent, but program validation "
                       "reads it replicated"))
      << said;
  EXPECT_TRUE(contains(said, "axis data")) << said;
}

TEST(Handover, GradientsWithoutTheirSumAreRefused) {
  CompiledSession s = session("none", 2);
  program(s, "train.last") = program(s, "train.first");
  const std::string said = problem_between(s);
  EXPECT_TRUE(contains(said,
                       "program train.last leaves %gradients.decay partial, but program update reads it "
                       "replicated"))
      << said;
}
