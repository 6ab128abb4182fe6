// Ranks along two axes: those of one data coordinate read the same samples.
#include <stdexcept>

#include "train/read_ahead.h"
#include "train/run_fixture.h"

namespace crest::test {

namespace {

// Two data ranks, each with the samples shared between some ranks.
Recipe on_mesh(Recipe r, int sharing) {
  r.data_parallel = 2 * sharing, r.seq = 16;
  if (sharing > 1) r.mesh = Mesh{{Axis::data, 2}, {Axis::context, sharing}};
  return r;
}

}  // namespace

// A rank fails in the middle of a step. Some other ranks sum gradients with it, and all ranks agree
// on the next step.
TEST(VirtualMesh, ARankThatFailsEndsTheOthers) {
  for (int failing = 0; failing < 4; ++failing) {
    Recipe recipe = on_mesh(tiny_recipe(), 2);
    recipe.pass_settings = {{"shard", "weights"}};
    Engine engine = make_engine(recipe);
    const int train = engine.session().find("train");
    try {
      for (int step = 0;; ++step)
        engine.from_all_ranks([&](Executor& rank) {
          rank.run(train);
          if (step == 1 && &rank == &engine.rank(failing)) throw std::runtime_error("rank " + std::to_string(failing));
          return std::vector<double>();
        });
    } catch (const std::runtime_error& e) {
      EXPECT_EQ(e.what(), "rank " + std::to_string(failing));
    }
  }
}

TEST(VirtualMesh, TheMeshHasAllRanks) {
  Recipe r = on_mesh(tiny_recipe(), 2);
  EXPECT_EQ(r.data_ranks(), 2);
  EXPECT_EQ(r.tokens_per_step(), 2 * r.batch * r.seq);
  r.data_parallel = 2;
  EXPECT_THROW(make_engine(r), Error);
}

using MeshRun = RunTest;

TEST_F(MeshRun, RanksOfOneDataCoordinateShareWhatIsReadAhead) {
  std::vector<std::vector<double>> losses;
  for (int sharing : {1, 2}) {
    TrainOptions o = options();
    o.recipe = on_mesh(o.recipe, sharing);
    o.recipe.grad_accumulation = 2, o.prefetch = 2, o.val_every = 2, o.out = "";
    auto& list = losses.emplace_back();
    o.on_step = [&](const StepRow& row) { list.push_back(row.loss); };
    o.on_validation = [&](const ValidationRow& row) { list.push_back(row.val_loss); };
    run_training(o);
  }
  ASSERT_EQ(losses[0].size(), 7u);
  ASSERT_EQ(losses[1].size(), 7u);
  for (size_t i = 0; i < 7; ++i) EXPECT_NEAR(losses[0][i], losses[1][i], 1e-5 * losses[0][i]) << i;
}

}  // namespace crest::test
