// Ranks with shared layers train like one rank, begin with its weights, and write and read its
// checkpoints.
#include "checkpoint/checkpoint.h"
#include "host/memory.h"
#include "memory_folder.h"
#include "model/parameters.h"
#include "train/mesh_run.h"
#include "train/state_bytes.h"

namespace crest::test {

namespace {

// Of the llama, two heads share keys and values.
Recipe recipe(bool llama, int64_t heads = 4) {
  Recipe r = tiny_recipe(llama);
  r.model.heads = heads, r.model.kv_heads = llama ? heads / 2 : heads, r.model.head_dim = 12;
  r.batch = 4, r.seq = 16;
  return r;
}

const Mesh two = {{Axis::tensor, 2}}, four = {{Axis::tensor, 4}}, square = {{Axis::data, 2}, {Axis::tensor, 2}};

}  // namespace

// SGD: Adam would make noise of gradients near zero.
TEST(TensorRanks, TrainLikeOne) {
  struct Case {
    bool llama;
    Mesh mesh;
    int64_t micro_steps;
    const char *fusion, *recompute, *reduce, *shard = "none", *offload = "none";
    int64_t heads = 4;
    const char* overlap = "off";
  };
  for (const Case& c : {Case{true, two, 1, "on", "none", "flat"}, Case{true, square, 2, "on", "full", "bucket"},
                        Case{false, square, 1, "off", "none", "each"},
                        Case{false, four, 2, "on", "auto", "overlap", "none", "activations=all", 4, "rows"},
                        Case{true, square, 1, "on", "none", "flat", "optimizer", "optimizer"},
                        Case{false, square, 2, "on", "none", "bucket", "gradients"},
                        Case{true, square, 1, "on", "full", "bucket", "weights", "none", 4, "rows"},
                        Case{true, two, 1, "on", "none", "flat", "none", "none", 6},
                        Case{false, four, 1, "off", "none", "flat", "none", "none", 5}}) {
    SCOPED_TRACE(std::string(c.llama ? "llama " : "gpt ") + c.mesh.text() + " shard " + c.shard);
    Recipe r = recipe(c.llama, c.heads);
    r.model.dropout = c.llama ? 0 : 0.2;
    r.grad_accumulation = c.micro_steps, r.fusion = c.fusion, r.recompute = c.recompute, r.optimizer = "sgd";
    r.pass_settings = {{"bucket", "20kB"}, {"pad-heads", "true"}};
    Recipe mesh = shared_by(r, c.mesh);
    mesh.pass_settings["reduce"] = c.reduce, mesh.pass_settings["shard"] = c.shard;
    mesh.pass_settings["offload"] = c.offload, mesh.pass_settings["tensor-overlap"] = c.overlap;
    expect_equal(run_on_mesh(mesh), run_on_mesh(r));
  }
}

// Each row is computed as without pieces. oneDNN's AVX2 product takes 24 rows at a time, and sums
// the rest in another order: 48 rows of a rank, of 96, leave no rest.
TEST(TensorRanks, OverlapKeepsTheBits) {
  for (bool llama : {false, true}) {
    Recipe one = recipe(llama);
    one.batch = 6;
    Recipe r = shared_by(one, two);
    const StepsOnMesh off = run_on_mesh(r);
    r.pass_settings["tensor-overlap"] = "rows";
    const StepsOnMesh rows = run_on_mesh(r);
    EXPECT_EQ(rows.losses, off.losses);
    EXPECT_EQ(rows.weights, off.weights);
    r.mesh = {{Axis::tensor, 2}, {Axis::pipeline, 2}}, r.data_parallel = 4, r.model.layers = 2;
    try {
      run_on_mesh(r);
      ADD_FAILURE();
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find("does not work with pipeline stages"), std::string::npos) << e.what();
    }
  }
}

// Layers with different parts: norms of heads and around branches, factors, partly rotated heads,
// windows.
TEST(TensorRanks, LayersOfSeveralKindsTrainLikeOne) {
  Recipe r = recipe(true);
  r.optimizer = "sgd";
  ModelConfig& m = r.model;
  m.qk_norm = QkNorm::head, m.norm_position = NormPosition::both, m.activation = ActivationKind::geglu;
  m.embedding_scale = 3, m.logit_scale = 0.5, m.logit_cap = 2, m.residual_scale = 0.4, m.attention_scale = 0.3;
  LayerConfig other = static_cast<const LayerConfig&>(m);
  other.parallel_residual = true, other.norm_position = NormPosition::after, other.rotary_dim = 4, other.window = 5;
  other.activation = ActivationKind::relu2, other.qk_norm = QkNorm::none;
  m.set_layers({static_cast<const LayerConfig&>(m), other});
  ASSERT_EQ(m.pattern, "AB");
  for (const Mesh& mesh : {two, square}) expect_equal(run_on_mesh(shared_by(r, mesh)), run_on_mesh(r));
  m.change_layers([](LayerConfig& l) { l.qk_norm = QkNorm::row; });
  try {
    run_on_mesh(shared_by(r, two));
    ADD_FAILURE();
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("norms of all queries"), std::string::npos) << e.what();
  }
}

TEST(TensorRanks, BeginWithTheWeightsOfOne) {
  for (const char* precision : {"fp32", "bf16"}) {
    Recipe r = recipe(true, std::string(precision) == "fp32" ? 6 : 4);
    r.precision = precision, r.pass_settings["pad-heads"] = "true";
    Engine one = make_engine(r), parts = make_engine(shared_by(r, square));
    EXPECT_EQ(weights_of(parts), weights_of(one)) << precision;
  }
}

// Ranks load a tensor at a time. They never hold the whole model, nor zeros for all states.
TEST(TensorRanks, BeginWithoutTheWholeModelInMemory) {
  Recipe r = recipe(false);
  r.model.layers = 8, r.model.width = 256, r.model.heads = 4, r.model.kv_heads = 4, r.model.head_dim = 64;
  r.model.ff = 1024, r.precision = "fp32";
  Recipe mesh = shared_by(r, square);
  mesh.pass_settings = {{"shard", "weights"}, {"reduce", "bucket"}};
  SessionUse use;
  use.train = use.update = true;
  const Device device = test_device(1);
  Engine e(compile(mesh, device, session_programs(mesh, use)));
  if (!reset_peak_resident()) GTEST_SKIP() << "the peak of this process cannot be reset";
  const int64_t before = peak_resident_bytes();
  e.initialize_weights(3);
  const double weights = 4.0 * double(parameter_count(r.model));
  // The ranks' parts of weights and two moments. Whole ones on every rank would be 15 times the
  // weights.
  EXPECT_LT(double(peak_resident_bytes() - before), 3.5 * weights);
}

using TensorFiles = RunTest;

// A checkpoint of one rank and of a mesh with the same numbers are the same files.
TEST_F(TensorFiles, CheckpointsDoNotKnowTheMesh) {
  for (int64_t heads : {4, 6}) {
    Recipe r = recipe(true, heads);
    r.precision = "bf16", r.pass_settings["pad-heads"] = "true";
    Engine one = make_engine(r);
    steps(one, 0, 3);
    save(one, folder / "one" + std::to_string(heads));
    for (const char* shard : {"none", "weights"}) {
      SCOPED_TRACE(shard);
      Recipe mesh = shared_by(r, std::string(shard) == "none" ? two : square);
      mesh.pass_settings["shard"] = shard, mesh.pass_settings["reduce"] = "bucket";
      Engine parts = make_engine(mesh);
      restore(parts, Checkpoint::open(folder / "one" + std::to_string(heads) + "/step-000003"));
      const std::string to = folder / "parts" + std::to_string(heads) + shard;
      save(parts, to);
      EXPECT_EQ(hashes_of(to), hashes_of(folder / "one" + std::to_string(heads)));
    }
  }
}

TEST(TensorRanks, HeadsThatDoNotDivideNeedPadding) {
  Recipe r = shared_by(recipe(true, 6), two);
  try {
    make_engine(r);
    FAIL() << "three heads of keys for two ranks";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("or --pad-heads: 2 of 8 heads are then zero"), std::string::npos) << e.what();
  }
}

}  // namespace crest::test
