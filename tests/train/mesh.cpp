// Along an axis unknown to all passes, ranks repeat the work of their data coordinate. The result
// has the bits of a run without these ranks.
#include <stdexcept>

#include "train/read_ahead.h"
#include "train/run_fixture.h"
#include "train/state_bytes.h"

namespace crest::test {

namespace {

// Two data ranks, each of them `copies` times.
Recipe on_mesh(Recipe r, Axis axis, int copies) {
  r.data_parallel = 2 * copies;
  if (copies > 1) r.mesh = Mesh{{Axis::data, 2}, {axis, copies}};
  return r;
}

struct MeshEnd {
  std::vector<double> losses, norms, targets;
  std::vector<std::string> bytes;
  double validation = 0;
  bool operator==(const MeshEnd&) const = default;
};

MeshEnd train_on_mesh(const Recipe& r) {
  Engine e = make_engine(r);
  MeshEnd end;
  SampleSource source = [&](uint64_t g, int32_t* x, int32_t* y, int32_t*) {
    synthetic(r, g, x, y);
    y[g % 3] = -1;
  };
  for (int s = 0; s < 3; ++s) {
    StepResult result = e.step(s, 1e-2, 11, source);
    end.losses.push_back(result.loss), end.norms.push_back(result.grad_norm);
    end.targets.push_back(double(result.targets));
  }
  e.load([&] {  // from the parts of all ranks, and back
    ShardedStates& sharded = e.rank(0).sharded();
    for (auto& t : sharded.tensors())
      sharded.read(t.parameter, t.state, [&] { sharded.write(t.parameter, t.state, [] {}); });
  });
  end.bytes = bytes_of(e);
  end.validation = e.validate(2, source);
  return end;
}

std::vector<Recipe> mesh_recipes() {
  std::vector<Recipe> list(4, tiny_recipe());
  for (Recipe& r : list) r.batch = 1, r.seq = 9, r.precision = "bf16";
  list[0].precision = "fp32", list[0].model.dropout = 0.1, list[0].grad_accumulation = 2;
  list[1].pass_settings = {{"shard", "weights"}, {"bucket", "20kB"}};
  list[2].pass_settings = {{"shard", "optimizer"}}, list[2].optimizer = "adamw-bf16-stochastic";
  list[3].precision = "fp8";
  return list;
}

}  // namespace

TEST(VirtualMesh, RanksOfOtherAxesChangeNoBit) {
  for (const Recipe& r : mesh_recipes()) {
    const MeshEnd expected = train_on_mesh(on_mesh(r, Axis::context, 1));
    EXPECT_TRUE(train_on_mesh(on_mesh(r, Axis::context, 2)) == expected) << r.precision << r.optimizer;
  }
}

// A rank fails in the middle of a step. Some other ranks sum gradients with it, and all ranks agree
// on the next step.
TEST(VirtualMesh, ARankThatFailsEndsTheOthers) {
  for (int failing = 0; failing < 4; ++failing) {
    Recipe recipe = on_mesh(tiny_recipe(), Axis::context, 2);
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
  Recipe r = on_mesh(tiny_recipe(), Axis::context, 2);
  EXPECT_EQ(r.data_ranks(), 2);
  EXPECT_EQ(r.tokens_per_step(), 2 * r.batch * r.seq);
  r.data_parallel = 2;
  EXPECT_THROW(make_engine(r), Error);
}

using MeshRun = RunTest;

TEST_F(MeshRun, RanksOfOneDataCoordinateShareWhatIsReadAhead) {
  std::vector<std::vector<double>> losses;
  for (int copies : {1, 2}) {
    TrainOptions o = options();
    o.recipe = on_mesh(o.recipe, Axis::context, copies);
    o.recipe.grad_accumulation = 2, o.prefetch = 2, o.val_every = 2, o.out = "";
    auto& list = losses.emplace_back();
    o.on_step = [&](const StepRow& row) { list.push_back(row.loss); };
    o.on_validation = [&](const ValidationRow& row) { list.push_back(row.val_loss); };
    run_training(o);
  }
  EXPECT_EQ(losses[0].size(), 7u);
  EXPECT_EQ(losses[0], losses[1]);
}

}  // namespace crest::test
