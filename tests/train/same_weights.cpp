// A different bit on one rank is found, with the rank and the tensor.
#include "train/same_weights.h"

#include <gtest/gtest.h>

#include "run/parameters.h"
#include "train/harness.h"

using namespace crest;

namespace {

std::string difference(Engine& engine) {
  try {
    check_same_weights(engine, "step 3");
  } catch (const WeightsDiffer& e) {
    return std::to_string(e.rank()) + ": " + e.problem();
  }
  return "";
}

void flip(const TensorRef& tensor) {
  ASSERT_TRUE(tensor.on_host());
  static_cast<char*>(tensor.data)[tensor.bytes() / 2] ^= 4;
}

}  // namespace

TEST(SameWeights, OneBitOfOneRankIsFound) {
  for (int ranks : {2, 3}) {
    SCOPED_TRACE(ranks);
    Recipe r = tiny_recipe();
    r.data_parallel = ranks;
    Engine engine = make_engine(r);
    engine.initialize_weights(1);
    SampleSource source = [&](uint64_t g, int32_t* x, int32_t* y, int32_t*) { synthetic(r, g, x, y); };
    for (int step = 0; step < 3; ++step) engine.step(step, 1e-3, 1, source);
    EXPECT_EQ(difference(engine), "");
    auto all = parameters(engine.rank(1));
    std::string than = ranks == 2 ? " than rank 0; which of them is right cannot be seen from as many on both sides"
                                  : " than ranks 0, 2";
    for (size_t i : {size_t(0), all.size() - 1}) {
      auto& p = all[i];
      std::vector<std::pair<std::string, TensorRef>> tensors = {{p.name, p.weight}};
      for (auto& s : p.states) tensors.push_back({p.name + "." + s.name, s.tensor});
      for (auto& [name, tensor] : tensors) {
        flip(tensor);
        EXPECT_EQ(difference(engine), "1: rank 1 holds other values of " + name + than);
        flip(tensor);
      }
    }
    EXPECT_EQ(difference(engine), "");
  }
}

// On a mesh a weight is compared among the ranks with the same part of it.
TEST(SameWeights, PartsAreComparedWithTheSameParts) {
  Recipe r = tiny_recipe();
  r.data_parallel = 4, r.mesh = {{Axis::data, 2}, {Axis::context, 2}}, r.seq = 16;
  SessionUse use;
  use.train = use.update = true;
  CompiledSession session = compile(r, crest::test::test_device(2), session_programs(r, use));
  Program& update = session.programs[size_t(session.find("update"))].program;
  const Param cut = update.params[0], whole = update.params[1];
  update.at(cut.value).placement[size_t(Axis::context)] = Placement::shard(0);
  Engine engine(std::move(session));
  engine.initialize_weights(1);
  auto change = [&](int rank, size_t parameter) { flip(parameters(engine.rank(rank))[parameter].weight); };
  for (int rank : {1, 3}) change(rank, 0);
  EXPECT_EQ(difference(engine), "");
  const std::string tie = "; which of them is right cannot be seen from as many on both sides";
  change(3, 0);
  EXPECT_EQ(difference(engine), "3: rank 3 holds other values of " + cut.name + " than rank 1" + tie);
  change(3, 0), change(3, 1);
  EXPECT_EQ(difference(engine), "3: rank 3 holds other values of " + whole.name + " than ranks 0, 1, 2");
}

// Stages have different numbers of tensors: each is compared with the same stage of other data
// ranks only.
TEST(SameWeights, StagesAreComparedWithThemselves) {
  Recipe r = tiny_recipe(true);
  r.model.layers = 4, r.batch = 1, r.grad_accumulation = 2;
  r.data_parallel = 6, r.mesh = {{Axis::data, 2}, {Axis::pipeline, 3}};
  Engine engine = make_engine(r, 1);
  EXPECT_EQ(difference(engine), "");
  const int other = r.layout().group(r.layout().ranks() - 1, Axis::data)[0];  // in the last stage
  const ParameterRef changed = own_parameters(engine.rank(r.layout().ranks() - 1)).back();
  flip(changed.weight);
  const std::string found = difference(engine);
  EXPECT_NE(found.find("other values of " + changed.name + " of stage 2 than rank " + std::to_string(other)),
            std::string::npos)
      << found;
}
