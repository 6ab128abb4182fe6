// Pipeline stages train like one rank that accumulates micro batches: with --deterministic bit for
// bit. They begin with its weights, and write and read its checkpoints.
#include "checkpoint/checkpoint.h"
#include "run/generate.h"
#include "train/mesh_run.h"
#include "train/state_bytes.h"

namespace crest::test {

namespace {

Recipe recipe(bool llama, int64_t layers = 3) {
  Recipe r = tiny_recipe(llama);
  r.model.layers = layers, r.model.tied = false;
  r.model.heads = 4, r.model.kv_heads = llama ? 2 : 4, r.model.head_dim = 12;
  r.batch = 2, r.seq = 16, r.grad_accumulation = 3;
  r.deterministic = true;
  return r;
}

const Mesh two = {{Axis::pipeline, 2}}, three = {{Axis::pipeline, 3}}, data = {{Axis::pipeline, 2}, {Axis::data, 2}},
           cube = {{Axis::pipeline, 2}, {Axis::data, 2}, {Axis::tensor, 2}};

struct PipelineRun {
  std::vector<double> losses, norms;
  std::vector<std::string> bytes;  // of weights, masters and states
  std::vector<std::vector<float>> weights;
  double validation = 0;
};

PipelineRun run_stages(const Recipe& r, double lr = 1e-2) {
  Engine e = make_engine(r, r.all_ranks());  // a thread for each
  SampleSource source = [&](uint64_t g, int32_t* x, int32_t* y, int32_t* positions) {
    synthetic(r, g, x, y);
    y[g % 5] = -1;
    for (int64_t i = 0; positions && i < r.seq; ++i) positions[i] = int32_t(i % 7);
  };
  e.read_whole_steps(true);
  PipelineRun run;
  for (int s = 0; s < 3; ++s) {
    const StepResult result = e.step(s, lr, 11, source);
    run.losses.push_back(result.loss), run.norms.push_back(result.grad_norm);
  }
  with_parameters(e, [&](const ParameterRef& p) {
    run.weights.emplace_back(size_t(p.numel()));
    p.get(run.weights.back().data());
    for (const TensorRef* t : {&p.weight, &p.master}) {
      run.bytes.emplace_back(size_t(t->bytes()), 0);
      t->read(run.bytes.back().data());
    }
    for (auto& s : p.states) {
      run.bytes.emplace_back(size_t(s.tensor.bytes()), 0);
      s.tensor.read(run.bytes.back().data());
    }
  });
  run.validation = e.validate(2, source);
  return run;
}

}  // namespace

TEST(PipelineRanks, TrainLikeAccumulationBitForBit) {
  struct Case {
    bool llama;
    Mesh mesh;
    int64_t micro_steps;
    const char *precision, *fusion, *recompute = "none", *optimizer = "adamw", *policy = "pure";
    std::map<std::string, std::string> settings = {};
    int64_t layers = 3;
  };
  for (const Case& c :
       {Case{true, two, 3, "fp32", "on"}, Case{false, three, 1, "fp32", "off"},
        Case{false, two, 4, "fp32", "on", "full", "muon"},
        Case{true, two, 3, "bf16", "off", "none", "adafactor", "pure", {{"packing", "documents"}, {"stages", "2,1"}}},
        Case{false, two, 2, "fp16", "on"},
        Case{true, two, 4, "fp32", "on", "none", "adamw", "pure", {{"schedule-pipeline", "interleaved:2"}}, 4},
        Case{false, two, 2, "bf16", "on", "full", "adamw", "pure", {{"schedule-pipeline", "interleaved:2"}}, 5},
        Case{true, three, 4, "fp32", "on", "none", "adamw", "pure", {{"schedule-pipeline", "zero-bubble"}}},
        Case{false, two, 3, "bf16", "on", "pointwise", "adamw", "pure", {{"schedule-pipeline", "zero-bubble"}}}}) {
    SCOPED_TRACE(std::string(c.llama ? "llama " : "gpt ") + c.mesh.text() + " " + c.precision + " fusion " + c.fusion +
                 " " + c.optimizer + " micro steps " + std::to_string(c.micro_steps));
    Recipe one = recipe(c.llama, c.layers);
    one.grad_accumulation = c.micro_steps, one.precision = c.precision, one.fusion = c.fusion;
    one.recompute = c.recompute, one.optimizer = c.optimizer, one.policy = c.policy;
    one.model.dropout = c.llama ? 0 : 0.2;
    one.model.embedding_norm = one.optimizer == "muon", one.model.logit_cap = one.optimizer == "muon" ? 2 : 0;
    if (one.optimizer == "muon") one.pass_settings["lr-embedding"] = "0.01";
    Recipe parts = shared_by(one, c.mesh);
    for (auto& [name, value] : c.settings) {
      if (name == "packing") one.pass_settings[name] = value;
      parts.pass_settings[name] = value;
    }
    const PipelineRun a = run_stages(one), b = run_stages(parts);
    EXPECT_EQ(b.losses, a.losses);
    EXPECT_EQ(b.norms, a.norms);
    EXPECT_EQ(b.validation, a.validation);
    ASSERT_EQ(b.bytes.size(), a.bytes.size());
    for (size_t i = 0; i < a.bytes.size(); ++i) EXPECT_TRUE(b.bytes[i] == a.bytes[i]) << "tensor " << i;
  }
}

// SGD: Adam would make noise of gradients near zero.
TEST(PipelineRanks, TrainLikeOneWithOtherAxesAndTiedEmbeddings) {
  struct Case {
    bool llama, tied;
    Mesh mesh;
    const char *reduce, *shard = "none", *offload = "none", *schedule = "1f1b";
  };
  for (const Case& c : {Case{true, true, two, "flat"}, Case{false, true, three, "flat", "none", "optimizer"},
                        Case{false, true, data, "bucket", "optimizer"}, Case{true, false, data, "bucket", "gradients"},
                        Case{false, true, data, "bucket", "gradients"},
                        Case{true, true, data, "bucket", "weights", "none", "interleaved:2"},
                        Case{false, true, cube, "bucket", "weights", "none", "zero-bubble"},
                        Case{true, false, cube, "bucket", "weights"}, Case{false, true, cube, "flat"},
                        Case{true, true, data, "flat", "none", "none", "interleaved:2"},
                        Case{false, true, cube, "bucket", "optimizer", "none", "zero-bubble"}}) {
    SCOPED_TRACE(std::string(c.llama ? "llama " : "gpt ") + c.mesh.text() + " shard " + c.shard);
    Recipe one = recipe(c.llama, 4);
    one.grad_accumulation = 2;
    one.model.tied = c.tied, one.optimizer = "sgd", one.deterministic = false;
    one.pass_settings = {{"bucket", "20kB"}};
    Recipe parts = shared_by(one, c.mesh);
    parts.pass_settings["reduce"] = c.reduce, parts.pass_settings["shard"] = c.shard;
    parts.pass_settings["offload"] = c.offload, parts.pass_settings["schedule-pipeline"] = c.schedule;
    const PipelineRun a = run_stages(one, 0.1), b = run_stages(parts, 0.1);
    for (size_t s = 0; s < a.losses.size(); ++s) {
      EXPECT_NEAR(b.losses[s], a.losses[s], 1e-5 * a.losses[s]) << "step " << s;
      EXPECT_NEAR(b.norms[s], a.norms[s], 1e-5 * a.norms[s]) << "step " << s;
    }
    EXPECT_NEAR(b.validation, a.validation, 1e-5 * a.validation);
    for (size_t i = 0; i < a.weights.size(); ++i)
      EXPECT_LT(relative_distance(b.weights[i], a.weights[i]), 1e-5) << "parameter " << i;
  }
}

// Each rank feeds the same tokens, as ranks do while they train. Rank 0 has the logits.
TEST(PipelineRanks, SampleAsOne) {
  struct Case {
    bool llama, tied;
    Mesh mesh;
    std::map<std::string, std::string> settings = {};
    const char *precision = "fp32", *policy = "pure";
  };
  for (const Case& c : {Case{true, false, three}, Case{false, true, two, {{"schedule-pipeline", "interleaved:2"}}},
                        Case{false, true, data, {{"shard", "weights"}, {"reduce", "bucket"}}},
                        Case{true, true, cube, {}, "bf16", "autocast"}}) {
    SCOPED_TRACE(std::string(c.llama ? "llama " : "gpt ") + c.mesh.text());
    auto sampled = [&](const Recipe& r) {
      SessionUse use;
      use.train = use.update = use.sampling = true, use.cache_length = 12, use.prefill = 4;
      Engine e(compile(r, crest::test::test_device(r.all_ranks()), session_programs(r, use)));
      e.initialize_weights(3);
      std::vector<float> all;
      e.on_all_ranks([&](int rank) {
        Decoder decoder(e.rank(rank));
        for (int32_t length : {6, 1, 1, 5, 1}) {  // the cache is full once
          std::vector<int32_t> tokens;
          for (int32_t t = 0; t < length; ++t) tokens.push_back((11 * t + 5 * length) % 90);
          auto logits = decoder.feed(tokens);
          if (rank == 0) all.insert(all.end(), logits.begin(), logits.end());
        }
        EXPECT_EQ(decoder.slides(), 1);
      });
      return all;
    };
    Recipe one = recipe(c.llama, 4);
    one.grad_accumulation = 2, one.model.tied = c.tied, one.precision = c.precision, one.policy = c.policy;
    Recipe parts = shared_by(one, c.mesh);
    for (auto& [name, value] : c.settings) parts.pass_settings[name] = value;
    const std::vector<float> a = sampled(one), b = sampled(parts);
    ASSERT_EQ(a.size(), size_t(5 * one.model.vocab));
    if (c.mesh.size(Axis::tensor) == 1)
      EXPECT_TRUE(a == b);
    else
      EXPECT_LT(relative_distance(b, a), 2e-2);
    EXPECT_GT(relative_distance(std::vector<float>(a.size(), 0), a), 0.5) << "logits are not zero";
  }
}

using PipelineFiles = RunTest;

// A checkpoint of one rank and of a mesh with the same numbers are the same files.
TEST_F(PipelineFiles, CheckpointsDoNotKnowTheMesh) {
  Recipe r = recipe(true);
  r.precision = "bf16", r.model.tied = true;
  Engine one = make_engine(r);
  steps(one, 0, 3);
  save(one, folder / "one");
  for (const Mesh& mesh : {three, data}) {
    SCOPED_TRACE(mesh.text());
    Recipe shared = shared_by(r, mesh);
    shared.pass_settings["shard"] = mesh == data ? "optimizer" : "none";
    Engine parts = make_engine(shared);
    restore(parts, Checkpoint::open(folder / "one/step-000003"));
    const std::string to = folder / "parts" + mesh.text();
    save(parts, to);
    EXPECT_EQ(hashes_of(to), hashes_of(folder / "one"));
  }
}

// Each would otherwise be ignored, or wait forever.
TEST(PipelineRanks, WhatIsNotThereIsRefused) {
  struct Case {
    const char* says;
    std::function<void(Recipe&)> change;
  };
  for (const Case& c :
       {Case{"fp8", [](Recipe& r) { r.precision = "fp8"; }},
        Case{"Use --grad-accumulation 4", [](Recipe& r) { r.pass_settings["schedule-pipeline"] = "interleaved:2"; }}}) {
    Recipe r = shared_by(recipe(true, 4), two);
    c.change(r);
    try {
      make_engine(r);
      ADD_FAILURE() << c.says;
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find(c.says), std::string::npos) << e.what();
      EXPECT_EQ(e.code(), Exit::usage);
    }
  }
}

TEST(PipelineRanks, MoreStagesThanLayersAreRefused) {
  try {
    make_engine(shared_by(recipe(true, 2), three));
    FAIL() << "two layers in three stages";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("Use pipeline=2 or fewer"), std::string::npos) << e.what();
  }
}

}  // namespace crest::test
