// Every pass as text: golden/<case>.before.prog goes in, golden/<case>.after.prog must come out.
// CREST_UPDATE_GOLDENS=1 writes both anew; read the difference before you commit it.
#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>
#include <set>

#include "core/io.h"
#include "core/text.h"
#include "passes/tiny.h"
#include "program/builder.h"
#include "program/text.h"
#include "program/verify.h"

using namespace crest;
using namespace crest::test;

namespace {

struct Golden {
  std::string name;  // of the files: the pass, and the value of its setting
  std::string pass;
  std::function<void(Recipe&)> set = [](Recipe&) {};
  bool llama = false;
  ProgramKind kind = ProgramKind::train;
  bool first = true, last = true;
  std::function<void(Program&)> prepare = [](Program&) {};
  int stage = 0;
};

// Adds two instructions with unused results, like instructions whose consumer a pass replaced.
// Today's passes remove such instructions, so prune finds nothing in the pipeline's Programs.
void add_dead_code(Program& p) {
  Builder b(p);
  b.origin = Origin("h.0.dead");
  ValueId x = p.find("h.0.mlp.fc.linear");
  b.emit1("tanh", {b.emit1("gelu", {x})});
}

std::vector<Golden> golden_cases() {
  auto fusion_on = [](Recipe& r) { r.fusion = "on"; };
  auto naive = [](Recipe& r) { r.fusion = "on", r.attention = "naive"; };
  auto none = [](Recipe&) {};
  auto documents = [](Recipe& r) { r.pass_settings["packing"] = "documents"; };
  auto window = [](Recipe& r) { r.model.window = 2, r.model.layers = 2, see_all_in_first(r.model, 1); };
  auto chunk = [](Recipe& r) { r.pass_settings["loss-chunk"] = "3"; };
  auto odd_vocabulary = [](Recipe& r) { r.pad_vocab = 1; };
  auto buckets = [](Recipe& r) {
    r.data_parallel = 2;
    r.pass_settings["reduce"] = "bucket", r.pass_settings["bucket"] = "1kB", r.pass_settings["comm-dtype"] = "bf16";
  };
  auto shards = [](Recipe& r, const char* level) {
    r.data_parallel = 2;
    r.pass_settings["shard"] = level, r.pass_settings["reduce"] = "bucket", r.pass_settings["bucket"] = "1kB";
  };
  auto tensor = [](Recipe& r) {
    r.mesh = Mesh{{Axis::data, 2}, {Axis::tensor, 2}}, r.data_parallel = 4;
    r.model.kv_heads = r.model.heads;
  };
  // The last of two stages; its embedding is the first one's.
  auto stages = [](Recipe& r) {
    r.mesh = Mesh{{Axis::pipeline, 2}, {Axis::data, 2}}, r.data_parallel = 4, r.model.layers = 2;
  };
  auto micro_steps = [](Recipe& r) { r.grad_accumulation = 3; };
  auto precision = [](const char* precision, const char* policy) {
    return [=](Recipe& r) { r.precision = precision, r.policy = policy; };
  };
  // Features in multiples of 16; the llama's ff is none, so its gate, up and mlp.proj stay bf16.
  auto fp8 = [](Recipe& r) { r.precision = "fp8", r.model.width = 16, r.model.head_dim = 8; };
  auto blocks = [=](Recipe& r) { fp8(r), r.pass_settings["fp8-recipe"] = "block"; };
  auto kept = [=](Recipe& r) { micro_steps(r), r.pass_settings["fp8-weights"] = "keep"; };
  auto updated = [=](Recipe& r) { fp8(r), r.pass_settings["fp8-weights"] = "update"; };
  auto int8 = [](Recipe& r) { r.pass_settings["weights"] = "int8"; };
  auto lora = [](Recipe& r) { r.model.lora.rank = 2, r.model.lora.targets = "attn.qkv"; };
  auto base = [=](Recipe& r, const char* weights) { lora(r), r.pass_settings["base-weights"] = weights; };
  auto overlap = [](Recipe& r) { r.fusion = "on", r.pass_settings["gradient-overlap"] = "on"; };
  auto dropped = [](const char* recompute) {
    return [=](Recipe& r) { r.fusion = "on", r.model.dropout = 0.1, r.recompute = recompute; };
  };
  auto with = [](const char* optimizer) { return [=](Recipe& r) { r.optimizer = optimizer; }; };
  ProgramKind train = ProgramKind::train, update = ProgramKind::update, decode = ProgramKind::decode;
  return {
      {"vocabulary_padding", "vocabulary_padding"},
      {"packing", "packing", documents},
      {"packing.llama", "packing", documents, true},
      {"packing.validation", "packing", documents, false, ProgramKind::validation},
      {"context_parallel", "context_parallel",
       [](Recipe& r) {
         r.mesh = {{Axis::context, 2}}, r.data_parallel = 2;
       }},
      {"context_parallel.llama", "context_parallel",
       [](Recipe& r) {
         r.mesh = {{Axis::context, 2}}, r.data_parallel = 2;
       },
       true},
      {"tensor_parallel", "tensor_parallel", tensor},
      {"pipeline_parallel.first", "pipeline_parallel", stages},
      {"pipeline_parallel.last", "pipeline_parallel", stages, false, train, true, true, [](Program&) {}, 1},
      {"borrowed.first", "borrowed", stages},
      {"borrowed.last", "borrowed", stages, false, train, true, true, [](Program&) {}, 1},
      {"loss_to_first", "loss_to_first", stages},
      {"tensor_parallel.llama", "tensor_parallel", tensor, true},
      {"tensor_parallel.packing", "tensor_parallel",
       [=](Recipe& r) {
         tensor(r);
         documents(r);
       }},
      {"attention.naive.packing", "attention",
       [=](Recipe& r) {
         documents(r);
         r.attention = "naive";
       },
       true},
      {"attention.naive", "attention", [](Recipe& r) { r.attention = "naive", r.model.dropout = 0.1; }},
      {"attention.naive.llama", "attention", [](Recipe& r) { r.attention = "naive"; }, true},
      {"attention.naive.window", "attention",
       [=](Recipe& r) {
         window(r);
         r.attention = "naive";
       },
       true},
      {"decompose", "decompose"},
      {"precision.tf32", "precision", precision("tf32", "pure")},
      {"precision.bf16.pure", "precision", precision("bf16", "pure")},
      {"precision.bf16.autocast", "precision", precision("bf16", "autocast")},
      {"precision.bf16.autocast.next", "precision", precision("bf16", "autocast"), false, train, false},
      {"precision.bf16.autocast.decode", "precision", precision("bf16", "autocast"), true, decode},
      {"precision.fp16.pure", "precision", precision("fp16", "pure")},
      {"autograd", "autograd"},
      {"autograd.tf32", "autograd", precision("tf32", "pure")},
      {"autograd.llama", "autograd", none, true},
      {"autograd.window", "autograd", window, true},
      {"autograd.update", "autograd", none, false, update},
      {"autograd.lora", "autograd", lora, true},
      {"accumulate.first", "accumulate", micro_steps, false, train, true, false},
      {"accumulate.next", "accumulate", micro_steps, false, train, false, false},
      {"fp8", "fp8", fp8},
      {"fp8.fast", "fp8", [=](Recipe& r) { fp8(r), r.pass_settings["fp8-fast-accumulation"] = "forward"; }},
      {"fp8.llama.first", "fp8", [=](Recipe& r) { fp8(r), kept(r); }, true, train, true, false},
      {"fp8.ranks.last", "fp8", [=](Recipe& r) { fp8(r), kept(r), r.data_parallel = 2; }, false, train, false},
      {"fp8.update", "fp8", fp8, false, update},
      {"fp8.weights.update", "fp8", updated, false, update},
      {"fp8.weights.start", "fp8", updated, false, ProgramKind::start},
      {"fp8.weights.next", "fp8", [=](Recipe& r) { updated(r), micro_steps(r); }, false, train, false, false},
      {"fp8.block", "fp8", blocks},
      {"fp8.block.llama.first", "fp8", [=](Recipe& r) { blocks(r), kept(r); }, true, train, true, false},
      {"fp8.block.next", "fp8", [=](Recipe& r) { blocks(r), kept(r); }, false, train, false, false},
      {"fp8.block.update", "fp8", blocks, false, update},
      {"int8.decode", "int8", int8, false, decode},
      {"int8.llama.decode", "int8", [=](Recipe& r) { int8(r), r.precision = "bf16"; }, true, decode},
      {"int8.autocast.decode", "int8", [=](Recipe& r) { int8(r), r.precision = "bf16", r.policy = "autocast"; }, false,
       decode},
      {"int8.validation", "int8", int8, false, ProgramKind::validation},
      {"int8.base", "int8", [=](Recipe& r) { base(r, "int8"); }, true},
      {"int8.base.update", "int8", [=](Recipe& r) { base(r, "int8"); }, true, update},
      {"int8.base.bf16", "int8", [=](Recipe& r) { base(r, "bf16"); }, true},
      {"fusion.int8", "fusion", [=](Recipe& r) { int8(r), fusion_on(r), r.batch = 1, r.seq = 1; }, false, decode},
      {"loss_chunk", "loss_chunk", chunk},
      {"loss_chunk.accumulate.next", "loss_chunk", [=](Recipe& r) { chunk(r), micro_steps(r); }, true, train, false,
       false},
      {"loss_chunk.autocast", "loss_chunk", [=](Recipe& r) { chunk(r), r.precision = "bf16", r.policy = "autocast"; }},
      {"loss_chunk.validation", "loss_chunk", chunk, false, ProgramKind::validation},
      {"clip", "clip", none, false, update},
      {"clip.tensor", "clip", tensor, false, update},
      {"optimizer", "optimizer", none, false, update},
      {"optimizer.8bit", "optimizer", with("adamw-8bit"), false, update},
      {"optimizer.adafactor", "optimizer", with("adafactor"), false, update},
      {"optimizer.muon", "optimizer", with("muon"), false, update},
      {"optimizer.muon.autocast", "optimizer",
       [](Recipe& r) { r.optimizer = "muon", r.precision = "bf16", r.policy = "autocast"; }, false, update},
      {"optimizer.fp16", "optimizer", precision("fp16", "pure"), false, update},
      {"groups", "groups"},
      {"groups.update", "groups", precision("bf16", "pure"), false, update},
      {"groups.update.adafactor", "groups", [](Recipe& r) { r.optimizer = "adafactor", r.precision = "bf16"; }, true,
       update},
      {"recompute.selective", "recompute", [](Recipe& r) { r.recompute = "selective"; }},
      {"recompute.full", "recompute", [](Recipe& r) { r.recompute = "full"; }},
      {"fp8_activations", "fp8_activations",
       [=](Recipe& r) { fp8(r), r.recompute = "pointwise", r.pass_settings["fp8-activations"] = "e4m3"; }},
      {"data_parallel.2", "data_parallel", [](Recipe& r) { r.data_parallel = 2; }},
      {"data_parallel.tensor", "data_parallel", tensor},
      {"data_parallel.buckets", "data_parallel", buckets},
      {"data_parallel.shard", "data_parallel",
       [](Recipe& r) { r.data_parallel = 2, r.pass_settings["shard"] = "optimizer"; }},
      {"swiglu.none", "swiglu", [=](Recipe& r) { fusion_on(r), r.recompute = "none"; }, true},
      {"swiglu.pointwise", "swiglu",
       [=](Recipe& r) { fusion_on(r), r.recompute = "pointwise", r.precision = "bf16", r.model.tied = true; }, true},
      {"swiglu.full", "swiglu", [=](Recipe& r) { fusion_on(r), r.recompute = "full"; }, true},
      {"swiglu.validation", "swiglu", fusion_on, true, ProgramKind::validation},
      {"epilogues", "epilogues", fusion_on},
      {"epilogues.pointwise.next", "epilogues",
       [=](Recipe& r) {
         fusion_on(r), micro_steps(r);
         r.recompute = "pointwise", r.precision = "bf16", r.grad_dtype = "bf16";
       },
       false, train, false, false},
      {"epilogues.full", "epilogues", [=](Recipe& r) { fusion_on(r), r.recompute = "full"; }},
      {"fusion.gpt2", "fusion", fusion_on},
      {"fusion.llama", "fusion", fusion_on, true},
      {"fusion.naive", "fusion", naive},
      {"fusion.naive.llama", "fusion", naive, true},
      {"fusion.naive.window", "fusion", [=](Recipe& r) { naive(r), window(r); }, true},
      {"fusion.naive.dropout.autocast", "fusion",
       [=](Recipe& r) {
         naive(r);
         r.model.dropout = 0.1, r.precision = "bf16", r.policy = "autocast", r.recompute = "selective";
       }},
      {"fusion.update.8bit", "fusion",
       [=](Recipe& r) {
         fusion_on(r);
         r.optimizer = "adamw-8bit", r.pass_settings["state-block"] = "64";
       },
       false, update},
      {"fusion.update", "fusion", fusion_on, false, update},
      {"dropout", "dropout", dropped("none")},
      {"dropout.llama.full", "dropout", dropped("full"), true},
      {"dropout.next", "dropout",
       [=](Recipe& r) {
         dropped("pointwise")(r), micro_steps(r);
         r.precision = "bf16";
       },
       false, train, false, false},
      {"dropout.autocast", "dropout",
       [=](Recipe& r) {
         dropped("pointwise")(r);
         r.precision = "bf16", r.policy = "autocast";
       }},
      {"quantization.dropout", "quantization", [=](Recipe& r) { fp8(r), dropped("pointwise")(r); }},
      {"fusion.update.fp8", "fusion", [=](Recipe& r) { updated(r), fusion_on(r); }, false, update},
      {"quantization", "quantization", [=](Recipe& r) { fp8(r), fusion_on(r), r.recompute = "pointwise"; }},
      {"quantization.block", "quantization", [=](Recipe& r) { blocks(r), fusion_on(r), r.recompute = "pointwise"; }},
      {"quantization.llama.next", "quantization",
       [=](Recipe& r) {
         fp8(r), fusion_on(r), kept(r);
         r.model.ff = 32;
       },
       true, train, false, false},
      {"forward_half", "forward_half", none, false, train, true, false},
      {"forward_half.fused.autocast", "forward_half",
       [=](Recipe& r) { fusion_on(r), r.precision = "bf16", r.policy = "autocast", r.recompute = "pointwise"; }, true,
       train, true, false},
      {"gradient_overlap", "gradient_overlap", overlap},
      {"gradient_overlap.lora.next", "gradient_overlap",
       [=](Recipe& r) {
         overlap(r), lora(r), micro_steps(r);
         r.recompute = "pointwise";
       },
       true, train, false, false},
      {"lanes", "lanes", buckets},
      {"tensor_overlap", "tensor_overlap",
       [=](Recipe& r) { fusion_on(r), tensor(r), r.pass_settings["tensor-overlap"] = "rows"; }, true},
      {"shard.gradients", "shard", [=](Recipe& r) { fusion_on(r), shards(r, "gradients"); }},
      {"shard.weights", "shard", [=](Recipe& r) { fusion_on(r), shards(r, "weights"); }},
      {"shard.weights.update", "shard", [=](Recipe& r) { fusion_on(r), shards(r, "weights"); }, false, update},
      {"shard", "shard",
       [=](Recipe& r) {
         fusion_on(r);
         r.data_parallel = 2, r.precision = "bf16", r.pass_settings["shard"] = "optimizer";
       },
       false, update},
      {"offload", "offload",
       [=](Recipe& r) {
         fusion_on(r), r.precision = "bf16";
         r.pass_settings["offload"] = "optimizer", r.pass_settings["offload-piece"] = "2kB";
       },
       false, update},
      {"offload.muon", "offload",
       [](Recipe& r) {
         r.optimizer = "muon";
         r.pass_settings["offload"] = "optimizer", r.pass_settings["offload-piece"] = "2kB";
       },
       false, update},
      {"offload.shard", "offload",
       [=](Recipe& r) {
         fusion_on(r), shards(r, "optimizer");
         r.pass_settings["offload"] = "optimizer", r.pass_settings["offload-piece"] = "2kB";
       },
       false, update},
      {"offload.fp8", "offload",
       [=](Recipe& r) {
         updated(r), fusion_on(r);
         r.pass_settings["offload"] = "optimizer", r.pass_settings["offload-piece"] = "2kB";
       },
       false, update},
      {"offload.activations", "offload",
       [=](Recipe& r) {
         fusion_on(r);
         r.model.layers = 2, r.pass_settings["offload"] = "activations";
       },
       true},
      {"fused_update", "fused_update", [=](Recipe& r) { updated(r), fusion_on(r); }, false, update},
      {"prune", "prune", none, false, train, true, true, add_dead_code},
      {"row_pitch", "row_pitch", odd_vocabulary},
      {"row_pitch.autocast.chunks", "row_pitch",
       [=](Recipe& r) {
         odd_vocabulary(r), chunk(r), fusion_on(r);
         r.precision = "bf16", r.policy = "autocast";
       }},
      {"row_pitch.validation", "row_pitch", odd_vocabulary, false, ProgramKind::validation},
  };
}

std::ostream& operator<<(std::ostream& out, const Golden& g) { return out << g.name; }

// Lines in only one of two texts, in order, as `diff` shows them.
std::string difference(const std::string& expected, const std::string& got) {
  auto a = split(expected, '\n'), b = split(got, '\n');
  std::vector<std::vector<int>> common(a.size() + 1, std::vector<int>(b.size() + 1, 0));
  for (size_t i = a.size(); i-- > 0;)
    for (size_t j = b.size(); j-- > 0;)
      common[i][j] = a[i] == b[j] ? common[i + 1][j + 1] + 1 : std::max(common[i + 1][j], common[i][j + 1]);
  std::string text;
  for (size_t i = 0, j = 0; i < a.size() || j < b.size();) {
    if (i < a.size() && j < b.size() && a[i] == b[j])
      ++i, ++j;
    else if (j == b.size() || (i < a.size() && common[i + 1][j] >= common[i][j + 1]))
      text += "  expected: " + a[i++] + "\n";
    else
      text += "  got:      " + b[j++] + "\n";
  }
  return text;
}

class Passes : public ::testing::TestWithParam<Golden> {
 protected:
  Passes() {
    recipe_ = tiny_recipe(GetParam().llama);
    GetParam().set(recipe_);
  }
  PassContext context() const {
    PassContext c = {recipe_, GetParam().kind, GetParam().first, GetParam().last};
    if (GetParam().pass == "row_pitch") c.row_alignment = 16;
    c.forward_only = GetParam().pass == "forward_half";
    c.concurrent_kernels = GetParam().pass == "gradient_overlap";
    c.stage = GetParam().stage;
    static const std::set<std::string> for_kernels = {"swiglu", "epilogues", "dropout", "quantization", "fused_update"};
    if (for_kernels.count(GetParam().pass)) c.kernel_for = [](const Program&, const Instr&) { return "a kernel"; };
    if (recipe_.pass_settings.count("weights"))  // for a few rows
      c.kernel_for = [](const Program& p, const Instr& i) { return p.at(i.in[0]).shape.rows() <= 2 ? "a kernel" : ""; };
    return c;
  }
  std::string path(const char* part) const {
    return std::string(CREST_TEST_DIR) + "/passes/golden/" + GetParam().name + "." + part + ".prog";
  }
  // The model after the passes before this one.
  Program input() const {
    Program p = forward_program(recipe_, GetParam().kind);
    size_t n = pass_index(GetParam().pass);
    PipelineOptions options;
    if (n > 0) options.stop_after = pipeline()[n - 1].name, run_passes(p, context(), options);
    GetParam().prepare(p);
    return p;
  }
  Program output(Program p) const {
    p.values.shrink_to_fit();  // every new value moves the others, to expose pointers into them (sanitizers)
    pipeline()[pass_index(GetParam().pass)].run(p, context());
    verify(p, GetParam().pass);
    return p;
  }
  static std::string file(const std::string& path) { return read_file(path, 1 << 20); }
  static constexpr const char* hint = "\nIf that is wanted: CREST_UPDATE_GOLDENS=1 rewrites the golden files.";

  Recipe recipe_;
};

}  // namespace

TEST_P(Passes, GiveTheGoldenText) {
  if (std::getenv("CREST_UPDATE_GOLDENS")) {
    std::string before = print(input());
    write_file_synced(path("before"), before);
    write_file_synced(path("after"), print(output(parse_program(before, path("before")))));
  }
  std::string before = file(path("before")), after = file(path("after"));
  EXPECT_TRUE(before != after) << "the pass does nothing here";
  Program p = parse_program(before, path("before"));
  EXPECT_EQ(print(p), before) << "the golden file does not parse back";
  std::string got = print(output(p));
  EXPECT_TRUE(got == after) << difference(after, got) << hint;
  EXPECT_EQ(print(parse_program(got, "got")), got);
}

// The golden inputs equal the pipeline's present
// ones, and text keeps everything the pass looks at.
TEST_P(Passes, GoldenInputsAreCurrent) {
  std::string before = file(path("before")), now = print(input());
  EXPECT_TRUE(now == before) << difference(before, now) << hint;
  std::string got = print(output(input())), after = file(path("after"));
  EXPECT_TRUE(got == after) << "parsed and built Programs differ:\n" << difference(after, got);
}

INSTANTIATE_TEST_SUITE_P(Golden, Passes, ::testing::ValuesIn(golden_cases()), [](auto& info) {
  std::string n = info.param.name;
  std::replace(n.begin(), n.end(), '.', '_');
  return n;
});

TEST(Passes, EveryPassHasAGolden) {
  for (auto& pass : pipeline()) {
    bool found = false;
    for (auto& c : golden_cases()) found |= c.pass == pass.name;
    EXPECT_TRUE(found) << pass.name;
  }
}
