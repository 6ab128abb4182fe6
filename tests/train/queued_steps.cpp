// Steps queued before the results of the previous step are read.
#include <gtest/gtest.h>

#include "train/harness.h"

namespace crest {
namespace {

SampleSource queued_data(const Recipe& r) {
  return [r](uint64_t g, int32_t* x, int32_t* y, int32_t*) { synthetic(r, g, x, y); };
}

TEST(QueuedSteps, GiveTheResultsOfStepsOneByOne) {
  for (int micro_steps : {1, 3}) {
    Recipe recipe = tiny_recipe();
    recipe.grad_accumulation = micro_steps;
    Trained expected = train(recipe, 6);
    Engine engine = make_engine(recipe);
    Trained found;
    SampleSource source = queued_data(recipe);
    int next = 0;
    for (int taken = 0; taken < 6; ++taken) {
      while (next < 6 && next <= taken + 1) engine.queue_step(next++, 1e-3, 11, source);
      EXPECT_EQ(engine.queued_steps(), next - taken);
      StepResult r = engine.take_step();
      found.losses.push_back(r.loss);
      found.norms.push_back(r.grad_norm);
      EXPECT_GT(r.targets, 0);
      EXPECT_GT(r.seconds, 0);
      EXPECT_LE(r.wait_seconds, r.seconds);
    }
    EXPECT_EQ(engine.queued_steps(), 0);
    EXPECT_EQ(found.losses, expected.losses);
    EXPECT_EQ(found.norms, expected.norms);
    for (auto& p : parameters(engine.rank(0))) {
      found.weights.emplace_back(size_t(p.numel()));
      p.get(found.weights.back().data());
    }
    EXPECT_EQ(found.weights, expected.weights);
  }
}

TEST(QueuedSteps, CountSkippedOnesInOrder) {
  Recipe recipe = tiny_recipe();
  Engine engine = make_engine(recipe);
  SampleSource source = queued_data(recipe);
  for (auto& p : parameters(engine.rank(0)))  // from the first step on
    if (p.name.find("ln_f.weight") != std::string::npos) p.weight.write(std::string(8, '\xff').data(), 4);
  for (int s = 0; s < 2; ++s) engine.queue_step(s, 1e-3, 11, source);
  for (int s = 1; s <= 2; ++s) {
    StepResult r = engine.take_step();
    EXPECT_TRUE(r.skipped);
    EXPECT_EQ(r.skipped_steps, s);
  }
}

// If the data source fails, the previous step is still complete.
TEST(QueuedSteps, AStepBeforeAFailingSourceIsTaken) {
  Recipe recipe = tiny_recipe();
  Trained expected = train(recipe, 1);
  Engine engine = make_engine(recipe);
  SampleSource source = queued_data(recipe);
  engine.queue_step(0, 1e-3, 11, source);
  SampleSource broken = [](uint64_t, int32_t*, int32_t*, int32_t*) { throw std::runtime_error("no more"); };
  EXPECT_THROW(engine.queue_step(1, 1e-3, 11, broken), std::runtime_error);
  ASSERT_EQ(engine.queued_steps(), 1);
  EXPECT_EQ(engine.take_step().loss, expected.losses[0]);
  EXPECT_EQ(engine.validate(2, source), expected.validation);
}

TEST(QueuedSteps, NothingElseRunsBesides) {
  Recipe recipe = tiny_recipe();
  Engine engine = make_engine(recipe);
  SampleSource source = queued_data(recipe);
  engine.queue_step(0, 1e-3, 11, source);
  EXPECT_ANY_THROW(engine.validate(1, source));
  EXPECT_ANY_THROW(engine.step(1, 1e-3, 11, source));
  engine.take_step();
  EXPECT_ANY_THROW(engine.take_step());
  EXPECT_NO_THROW(engine.validate(1, source));
}

}  // namespace
}  // namespace crest
