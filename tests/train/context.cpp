// Ranks with shared sequences train like one rank, and write and read its checkpoints.
#include "checkpoint/checkpoint.h"
#include "memory_folder.h"
#include "train/mesh_run.h"
#include "train/state_bytes.h"

namespace crest::test {

namespace {

Recipe recipe_of_sequences(bool llama) {
  Recipe r = tiny_recipe(llama);
  r.model.heads = 4, r.model.kv_heads = llama ? 2 : 4, r.model.head_dim = 12;
  r.batch = 2, r.seq = 32;
  return r;
}

// Documents of 5 to 11 tokens across the borders of chunks. Every third target does not count.
SampleSource documents_of(const Recipe& r) {
  return [r](uint64_t g, int32_t* x, int32_t* y, int32_t* positions) {
    synthetic(r, g, x, y);
    for (int64_t t = 0; t < r.seq; ++t) {
      if (t % 3 == 1) y[t] = -1;
      if (positions) positions[t] = int32_t(t % (5 + int64_t(g % 7)));
    }
  };
}

const Mesh halves = {{Axis::context, 2}}, quarters = {{Axis::context, 4}},
           of_data = {{Axis::data, 2}, {Axis::context, 2}}, of_heads = {{Axis::context, 2}, {Axis::tensor, 2}},
           of_layers = {{Axis::pipeline, 2}, {Axis::context, 2}};

}  // namespace

TEST(ContextRanks, TrainLikeOne) {
  struct Case {
    bool llama;
    Mesh mesh;
    int64_t micro_steps;
    const char *fusion, *recompute, *reduce, *shard = "none", *packing = "stream", *offload = "none";
    int64_t window = 0, seq = 32;
  };
  for (const Case& c : {Case{true, halves, 1, "on", "none", "flat"},
                        Case{false, quarters, 2, "on", "full", "bucket", "none", "documents"},
                        Case{true, quarters, 1, "off", "none", "each", "none", "stream", "none", 9},
                        Case{false, of_data, 1, "off", "none", "overlap"},
                        Case{true, of_data, 2, "on", "auto", "bucket", "gradients", "documents", "activations=all"},
                        Case{true, halves, 1, "on", "none", "flat", "optimizer", "documents", "optimizer", 7},
                        Case{false, of_data, 1, "on", "full", "bucket", "weights"},
                        Case{true, of_heads, 1, "on", "none", "flat"}, Case{true, of_layers, 3, "on", "none", "flat"},
                        Case{false, of_layers, 2, "on", "full", "flat", "none", "documents"},
                        Case{false, quarters, 1, "on", "none", "flat", "none", "stream", "none", 0, 29},
                        Case{true, of_data, 2, "on", "full", "bucket", "gradients", "documents", "none", 7, 31}}) {
    SCOPED_TRACE(std::string(c.llama ? "llama " : "gpt ") + c.mesh.text() + " shard " + c.shard + " " + c.packing);
    Recipe r = recipe_of_sequences(c.llama);
    r.seq = r.model.context = c.seq;
    r.model.dropout = c.llama || c.seq != 32 ? 0 : 0.2;
    if (c.mesh == of_layers) r.model.layers = 2;
    r.model.change_layers([&](LayerConfig& l) { l.window = c.window; });
    r.grad_accumulation = c.micro_steps, r.fusion = c.fusion, r.recompute = c.recompute, r.optimizer = "sgd";
    r.pass_settings = {{"bucket", "20kB"}, {"packing", c.packing}};
    Recipe mesh = shared_by(r, c.mesh);
    mesh.pass_settings["reduce"] = c.reduce, mesh.pass_settings["shard"] = c.shard;
    mesh.pass_settings["offload"] = c.offload;
    expect_equal(run_on_mesh(mesh, documents_of(r)), run_on_mesh(r, documents_of(r)));
  }
}

using ContextFiles = RunTest;

TEST_F(ContextFiles, CheckpointsDoNotKnowTheMesh) {
  Recipe r = recipe_of_sequences(true);
  r.precision = "bf16";
  Engine one = make_engine(r);
  steps(one, 0, 3);
  save(one, folder / "one");
  for (const Mesh& mesh : {halves, of_data}) {
    Recipe parts = shared_by(r, mesh);
    parts.pass_settings = {{"shard", mesh == halves ? "weights" : "optimizer"}, {"reduce", "bucket"}};
    Engine e = make_engine(parts);
    restore(e, Checkpoint::open(folder / "one/step-000003"));
    const std::string to = folder / "parts" + mesh.text();
    save(e, to);
    EXPECT_EQ(hashes_of(to), hashes_of(folder / "one"));
  }
}

TEST(ContextRanks, RefuseWhatTheyCannotShare) {
  struct Case {
    const char* said;
    const char* advice;
    void (*change)(Recipe&);
  };
  for (const Case& c : {Case{"--precision fp8", "Use bf16", [](Recipe& r) { r.precision = "fp8"; }},
                        Case{"--attention naive", "--attention flash", [](Recipe& r) { r.attention = "naive"; }},
                        Case{"pads sequences of 30 tokens to 32", "--dropout 0, or --seq 28",
                             [](Recipe& r) { r.seq = 30, r.model.dropout = 0.1; }}}) {
    Recipe r = shared_by(recipe_of_sequences(true), halves);
    r.model.layers = 2;
    c.change(r);
    try {
      make_engine(r);
      ADD_FAILURE() << c.said;
    } catch (const Error& e) {
      const std::string text = e.what();
      EXPECT_NE(text.find(c.said), std::string::npos) << text;
      EXPECT_NE(text.find(c.advice), std::string::npos) << text;
    }
  }
}

}  // namespace crest::test
