// Sharded steps against the lockstep oracle.
#include "passes/lockstep.h"

#include <gtest/gtest-spi.h>

using namespace crest;
using namespace crest::test;

namespace {

Program compiled(const Recipe& r, ProgramKind kind, bool first, bool last, int stage = 0) {
  Program p = forward_program(r, kind);
  PassContext context = {r, kind, first, last};
  context.stage = stage;
  run_passes(p, context);
  return in_double(p);
}

struct Ended {
  int made = 0, compared = 0, parameters = 0;
  bool blocked = false;  // every stage waits for another one
};

Ended run_stages(const Program& whole, const std::vector<Program>& parts, const Mesh& mesh) {
  const Mesh of_stage = {{Axis::data, mesh.size(Axis::data)},
                         {Axis::context, mesh.size(Axis::context)},
                         {Axis::tensor, mesh.size(Axis::tensor)}};
  std::deque<Lockstep> stages;
  for (size_t s = 0; s < parts.size(); ++s) stages.emplace_back(whole, parts[s], of_stage, int(s)).prepare();
  Links links;
  links.stages = int(parts.size());
  Ended end;
  bool any = true;
  while (any && !testing::Test::HasFailure()) {
    any = false;
    for (Lockstep& stage : stages)
      while (!stage.ended() && !testing::Test::HasFailure() && stage.advance(links)) any = true;
  }
  for (Lockstep& stage : stages) {
    end.made += stage.made, end.compared += stage.compared, end.parameters += stage.parameters;
    end.blocked |= !stage.ended();
  }
  for (auto& [ranks, queue] : links.sent) end.blocked |= !queue.empty();
  EXPECT_TRUE(testing::Test::HasFailure() || !end.blocked) << "the stages wait for each other";
  return end;
}

// All Programs of a step, of one rank and on the mesh. own: each micro step computes its own
// contribution, because gradients are shards in between.
void compare_steps(const Recipe& one, const Recipe& part, bool own = false) {
  const bool several = one.grad_accumulation > 1;
  struct Step {
    const char* name;
    ProgramKind kind;
    bool first, last;
  };
  for (Step s :
       {Step{"first", ProgramKind::train, true, !several}, Step{"last", ProgramKind::train, !several, true},
        Step{"validation", ProgramKind::validation, true, true}, Step{"update", ProgramKind::update, true, true}}) {
    if (std::string_view(s.name) == "last" && !several) continue;  // the first, too
    if (PassContext{part, s.kind}.setting("shard") != "none" && s.kind == ProgramKind::update && one.fusion == "off")
      continue;  // refused
    SCOPED_TRACE(one.model.name + " on " + part.layout().text() + " fusion " + one.fusion + ", " + s.name + " of " +
                 std::to_string(one.grad_accumulation));
    const Program whole = compiled(one, s.kind, s.first || own, s.last);
    std::vector<Program> parts;
    for (int stage = 0; stage < part.layout().size(Axis::pipeline); ++stage)
      parts.push_back(compiled(part, s.kind, s.first, s.last, stage));
    const Ended run = run_stages(whole, parts, part.layout());
    if (testing::Test::HasFailure()) return;
    if (s.kind == ProgramKind::update)
      EXPECT_GT(run.parameters, 15);
    else
      EXPECT_GT(run.compared, run.made * 8 / 10) << run.made;
  }
}

// The same global batch.
Recipe on_mesh(Recipe& one, const Mesh& mesh) {
  Recipe part = one;
  one.batch = part.batch * mesh.size(Axis::data);
  part.data_parallel = mesh.ranks(), part.mesh = mesh;
  return part;
}

}  // namespace

TEST(Lockstep, EveryRankHasWhatThePlacementsSay) {
  for (bool llama : {false, true})
    for (const char* how : {"each", "flat", "overlap", "bucket", "optimizer", "gradients", "weights"})
      for (int64_t micro_steps : {1, 2})
        for (const char* fusion : {"off", "on"}) {
          Recipe one = tiny_recipe(llama);
          one.grad_accumulation = micro_steps, one.fusion = fusion, one.model.dropout = llama ? 0 : 0.25;
          one.deterministic = llama;
          one.pass_settings["bucket"] = "500B";
          Recipe part = on_mesh(one, {{Axis::data, 2}});
          bool shards =
              std::string(how) == "optimizer" || std::string(how) == "gradients" || std::string(how) == "weights";
          part.pass_settings["reduce"] = shards ? "bucket" : how;
          if (shards) part.pass_settings["shard"] = how;
          SCOPED_TRACE(how);
          compare_steps(one, part, std::string(how) == "gradients" || std::string(how) == "weights");
          if (HasFailure()) return;
        }
}

// Ranks own whole matrices. With three ranks and two layers, one rank has none.
TEST(Lockstep, RanksHaveTheirMatricesOfMuon) {
  const Mesh two = {{Axis::data, 2}}, three = {{Axis::data, 3}}, stages = {{Axis::pipeline, 2}, {Axis::data, 2}};
  struct How {
    Mesh mesh;
    const char* shard;
    bool llama = false;
  };
  for (const How& how :
       {How{two, "optimizer", true}, How{three, "optimizer"}, How{two, "gradients"}, How{two, "weights", true},
        How{stages, "optimizer", true}, How{{{Axis::context, 2}}, "optimizer"},
        How{{{Axis::data, 2}, {Axis::context, 2}}, "weights", true}}) {
    Recipe one = tiny_recipe(how.llama);
    one.optimizer = "muon", one.fusion = "on", one.model.dropout = 0, one.model.tied = false;
    if (how.mesh == stages) one.model.layers = 3;
    one.pass_settings["bucket"] = "500B", one.pass_settings["reduce"] = "bucket";
    Recipe part = on_mesh(one, how.mesh);
    part.pass_settings["shard"] = how.shard;
    SCOPED_TRACE(how.shard);
    compare_steps(one, part, std::string(how.shard) != "optimizer");
    if (HasFailure()) return;
  }
}

TEST(Lockstep, TensorRanksHaveWhatThePlacementsSay) {
  struct How {
    Mesh mesh;
    bool llama;
    const char *fusion, *attention, *reduce;
    int64_t micro_steps;
    std::map<std::string, std::string> settings = {};
    const char* recompute = "none";
    const char* shard = "none";
  };
  const Mesh two = {{Axis::tensor, 2}}, four = {{Axis::tensor, 4}}, square = {{Axis::data, 2}, {Axis::tensor, 2}};
  for (const How& how :
       {How{two, true, "off", "flash", "flat", 1}, How{two, false, "on", "flash", "bucket", 2, {}, "full"},
        How{square, true, "on", "naive", "each", 2, {}, "full"}, How{square, false, "off", "naive", "overlap", 1},
        How{square, true, "on", "flash", "bucket", 1, {{"packing", "documents"}}},
        How{two, false, "on", "flash", "flat", 1, {{"packing", "documents"}}},
        How{four, false, "on", "flash", "flat", 1}, How{two, true, "on", "flash", "each", 2, {{"loss-chunk", "4"}}},
        How{square, true, "on", "flash", "flat", 1, {}, "none", "optimizer"},
        How{square, false, "on", "flash", "bucket", 2, {}, "none", "gradients"},
        How{square, true, "on", "naive", "bucket", 2, {}, "full", "weights"},
        How{two, true, "on", "flash", "flat", 1, {{"tensor-overlap", "rows"}}},
        How{four, false, "on", "flash", "each", 2, {{"tensor-overlap", "rows"}}, "full"},
        How{square, true, "off", "naive", "bucket", 2, {{"tensor-overlap", "rows"}}, "full", "weights"},
        How{two, false, "off", "flash", "flat", 1, {{"tensor-overlap", "rows"}, {"packing", "documents"}}}}) {
    Recipe one = tensor_recipe(how.llama);
    one.model.dropout = how.llama ? 0 : 0.25;
    one.fusion = how.fusion, one.attention = how.attention, one.grad_accumulation = how.micro_steps;
    one.recompute = how.recompute, one.pass_settings = how.settings;
    one.pass_settings["bucket"] = "500B", one.pass_settings["reduce"] = how.reduce;
    Recipe part = on_mesh(one, how.mesh);
    const std::string shard = how.shard;
    if (shard != "none") part.pass_settings["shard"] = shard;
    SCOPED_TRACE(shard);
    compare_steps(one, part, shard == "gradients" || shard == "weights");
    if (HasFailure()) return;
  }
}

TEST(Lockstep, ContextRanksHaveWhatThePlacementsSay) {
  struct How {
    Mesh mesh;
    bool llama;
    const char *fusion, *reduce;
    int64_t micro_steps;
    std::map<std::string, std::string> settings = {};
    const char *recompute = "none", *shard = "none";
    int64_t window = 0;
  };
  const Mesh two = {{Axis::context, 2}}, four = {{Axis::context, 4}}, data = {{Axis::context, 2}, {Axis::data, 2}},
             tensor = {{Axis::context, 2}, {Axis::tensor, 2}}, stages = {{Axis::pipeline, 2}, {Axis::context, 2}},
             cube = {{Axis::context, 2}, {Axis::data, 2}, {Axis::tensor, 2}},
             all = {{Axis::pipeline, 2}, {Axis::data, 2}, {Axis::context, 2}, {Axis::tensor, 2}};
  const std::map<std::string, std::string> documents = {{"packing", "documents"}};
  for (const How& how :
       {How{two, true, "off", "flat", 1}, How{two, false, "off", "flat", 1},
        How{two, false, "on", "bucket", 2, {}, "full"}, How{four, true, "on", "each", 2, documents},
        How{four, false, "on", "flat", 1, documents, "full"}, How{four, true, "on", "flat", 1, {}, "none", "none", 5},
        How{two, true, "on", "flat", 1, documents, "none", "optimizer", 3},
        How{two, true, "on", "flat", 2, {{"loss-chunk", "4"}}, "pointwise"}, How{data, false, "on", "overlap", 1},
        How{data, true, "on", "flat", 1, {}, "none", "optimizer"},
        How{data, false, "on", "bucket", 2, {}, "none", "gradients"},
        How{data, true, "on", "bucket", 2, documents, "full", "weights"}, How{tensor, true, "on", "flat", 2},
        How{tensor, false, "on", "bucket", 1, documents, "full"},
        How{cube, true, "on", "bucket", 1, {}, "none", "weights", 6}, How{stages, true, "off", "flat", 2},
        How{stages, false, "on", "bucket", 1, documents, "full"},
        How{all, false, "on", "bucket", 2, {}, "full", "gradients"},
        How{all, true, "on", "bucket", 1, documents, "none", "weights", 5}}) {
    Recipe one = tensor_recipe(how.llama);
    one.seq = one.model.context = 16;
    if (how.mesh == stages || how.mesh == all) one.model.layers = 2;
    one.model.change_layers([&](LayerConfig& l) { l.window = how.window; });
    one.model.dropout = how.llama ? 0 : 0.25;
    one.fusion = how.fusion, one.grad_accumulation = how.micro_steps, one.deterministic = how.llama;
    one.recompute = how.recompute, one.pass_settings = how.settings;
    one.pass_settings["bucket"] = "500B", one.pass_settings["reduce"] = how.reduce;
    Recipe part = on_mesh(one, how.mesh);
    // A rank's chunk at a time: then all ranks together have eight neighboring tokens.
    if (how.settings.count("loss-chunk")) one.pass_settings["loss-chunk"] = "8";
    const std::string shard = how.shard;
    if (shard != "none") part.pass_settings["shard"] = shard;
    SCOPED_TRACE(shard + " window " + std::to_string(how.window));
    compare_steps(one, part, shard == "gradients" || shard == "weights");
    if (HasFailure()) return;
  }
}

TEST(Lockstep, TensorRanksSampleAsOne) {
  for (bool llama : {false, true})
    for (ProgramKind kind : {ProgramKind::prefill, ProgramKind::decode}) {
      Recipe one = tensor_recipe(llama);
      one.batch = 1, one.fusion = "on", one.model.logit_cap = llama ? 2 : 0;
      const Recipe part = on_mesh(one, {{Axis::tensor, 2}});
      SCOPED_TRACE(one.model.name + " " + std::string(name(kind)));
      const Program whole = compiled(one, kind, true, true), parts = compiled(part, kind, true, true);
      Lockstep run(whole, parts, part.layout());
      run.run();
      EXPECT_GT(run.compared, run.made * 8 / 10) << run.made;
    }
}

// Gradients, sums over the stages and borrowed embeddings in one Program for each stage.
TEST(Lockstep, PipelineStagesHaveWhatThePlacementsSay) {
  struct How {
    Mesh mesh;
    bool llama;
    const char *fusion, *reduce;
    int64_t micro_steps;
    bool tied = false;
    std::map<std::string, std::string> settings = {};
    const char *recompute = "none", *shard = "none";
  };
  const Mesh two = {{Axis::pipeline, 2}}, three = {{Axis::pipeline, 3}}, data = {{Axis::pipeline, 2}, {Axis::data, 2}},
             tensor = {{Axis::pipeline, 2}, {Axis::tensor, 2}},
             cube = {{Axis::pipeline, 2}, {Axis::data, 2}, {Axis::tensor, 2}};
  for (const How& how :
       {How{two, true, "off", "flat", 1}, How{two, false, "on", "flat", 2, true}, How{three, false, "on", "each", 2},
        How{three, true, "on", "flat", 2, true, {{"packing", "documents"}}, "full"},
        How{two, true, "on", "flat", 1, false, {{"loss-chunk", "4"}, {"stages", "2,1"}}},
        How{data, true, "on", "bucket", 2, true}, How{data, false, "off", "overlap", 1},
        How{data, true, "on", "flat", 1, true, {}, "none", "optimizer"},
        How{data, false, "on", "bucket", 2, false, {}, "full", "gradients"},
        How{data, true, "on", "bucket", 2, false, {}, "none", "weights"},
        How{data, false, "on", "bucket", 2, true, {}, "none", "gradients"},
        How{data, true, "on", "bucket", 1, true, {}, "none", "weights"},
        How{cube, false, "on", "bucket", 2, true, {}, "full", "weights"}, How{tensor, true, "on", "flat", 2, true},
        How{tensor, false, "on", "bucket", 1, false, {{"packing", "documents"}}},
        How{cube, true, "on", "flat", 2, true, {}, "full"},
        How{cube, false, "on", "bucket", 1, false, {}, "none", "weights"}}) {
    Recipe one = tensor_recipe(how.llama);
    one.model.layers = 3, one.model.tied = how.tied, one.model.dropout = how.llama ? 0 : 0.25;
    one.fusion = how.fusion, one.grad_accumulation = how.micro_steps, one.deterministic = how.llama;
    one.recompute = how.recompute, one.pass_settings = how.settings;
    one.pass_settings["bucket"] = "500B", one.pass_settings["reduce"] = how.reduce;
    Recipe part = on_mesh(one, how.mesh);
    const std::string shard = how.shard;
    if (shard != "none") part.pass_settings["shard"] = shard;
    SCOPED_TRACE(shard + (how.tied ? " tied" : ""));
    compare_steps(one, part, shard == "gradients" || shard == "weights");
    if (HasFailure()) return;
  }
}

// Every transfer is needed, in its place.
TEST(Lockstep, MissingAndSwappedTransfersShow) {
  const Mesh two = {{Axis::pipeline, 2}};
  Recipe one = tensor_recipe(false);
  one.model.layers = 2, one.model.tied = true, one.fusion = "on";
  const Recipe part = on_mesh(one, two);
  const Program whole = compiled(one, ProgramKind::train, true, true);
  const std::vector<Program> right = {compiled(part, ProgramKind::train, true, true, 0),
                                      compiled(part, ProgramKind::train, true, true, 1)};
  int mutations = 0;
  for (size_t s : {0, 1}) {
    std::vector<size_t> sends;
    for (size_t i = 0; i < right[s].code.size(); ++i)
      if (std::string_view(right[s].code[i].op->name) == "send") sends.push_back(i);
    ASSERT_GE(sends.size(), 2u) << s;
    for (size_t k = 0; k < sends.size(); ++k) {
      std::vector<Program> dropped = right;
      dropped[s].code.erase(dropped[s].code.begin() + std::ptrdiff_t(sends[k]));
      testing::TestPartResultArray failures;
      {
        testing::ScopedFakeTestPartResultReporter fake(
            testing::ScopedFakeTestPartResultReporter::INTERCEPT_ONLY_CURRENT_THREAD, &failures);
        run_stages(whole, dropped, two);
      }
      EXPECT_GT(failures.size(), 0) << "without send " << k << " of stage " << s;
      ++mutations;
    }
  }
  EXPECT_GE(mutations, 5);
}
