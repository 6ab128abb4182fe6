// Times of instructions: by timers on every device, by the device's own records where it has them.
#include <gtest/gtest.h>

#include "program/op.h"
#include "train/harness.h"

namespace crest {
namespace {

Recipe two_micro_steps() {
  Recipe r = tiny_recipe();
  r.grad_accumulation = 2;
  return r;
}

SampleSource data(const Recipe& r) {
  return [r](uint64_t g, int32_t* x, int32_t* y, int32_t*) { synthetic(r, g, x, y); };
}

// Rows are in order within the run, and their sum does not exceed its time.
void expect_consistent(const StepTrace& t, const Program& program) {
  ASSERT_EQ(t.seconds.size(), program.code.size());
  ASSERT_EQ(t.starts.size(), program.code.size());
  EXPECT_GT(t.total, 0);
  double sum = 0, before = t.start;
  for (size_t i = 0; i < t.seconds.size(); ++i) {
    EXPECT_GE(t.seconds[i], 0) << program.code[i].op->name;
    EXPECT_GE(t.starts[i], before - 1e-9) << program.code[i].op->name;
    before = t.starts[i];
    sum += t.seconds[i];
  }
  EXPECT_LE(sum, t.total * 1.0001);
  EXPECT_GT(sum, 0);
}

TEST(Traces, TimersGiveEachInstructionItsPlaceInTheStep) {
  Recipe recipe = two_micro_steps();
  Engine engine = make_engine(recipe);
  SampleSource tokens = data(recipe);
  std::vector<StepTrace> traces;
  double plain = engine.step(0, 0, 1, tokens).loss;
  double traced = engine.step(0, 0, 1, tokens, &traces).loss;
  EXPECT_EQ(plain, traced);
  auto calls = training_step(engine.session());
  ASSERT_EQ(traces.size(), calls.size());
  ASSERT_EQ(calls.size(), 3u);
  double end = 0;
  for (size_t c = 0; c < calls.size(); ++c) {
    expect_consistent(traces[c], engine.session().programs[size_t(calls[c].segment)].program);
    EXPECT_GE(traces[c].start, end);
    end = traces[c].start + traces[c].total;
  }
}

TEST(Traces, RecordedWorkBelongsToInstructions) {
  Recipe recipe = two_micro_steps();
  Engine engine = make_engine(recipe);
  SampleSource tokens = data(recipe);
  for (int i = 0; i < 2; ++i) engine.step(0, 0, 1, tokens);
  if (!engine.rank(0).runtime().record_work(true)) GTEST_SKIP() << "this device keeps no records";
  double plain = engine.step(0, 0, 1, tokens).loss;
  for (int repetition = 0; repetition < 2; ++repetition) {
    std::vector<StepTrace> traces;
    EXPECT_EQ(engine.step(0, 0, 1, tokens, &traces).loss, plain);
    auto calls = training_step(engine.session());
    for (size_t c = 0; c < calls.size(); ++c) {
      const Program& program = engine.session().programs[size_t(calls[c].segment)].program;
      expect_consistent(traces[c], program);
      std::vector<int> pieces(program.code.size());
      for (auto& w : traces[c].work) {
        EXPECT_FALSE(w.name.empty());
        if (w.instruction >= 0) ++pieces[size_t(w.instruction)];
      }
      for (size_t i = 0; i < pieces.size(); ++i)
        if (program.code[i].op->op_class == OpClass::contraction) {
          EXPECT_GE(pieces[i], 1) << i;
        }
    }
  }
  engine.rank(0).runtime().record_work(false);
  EXPECT_EQ(engine.step(0, 0, 1, tokens).loss, plain);
}

}  // namespace
}  // namespace crest
