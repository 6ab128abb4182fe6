// Training with --fp8-recipe block: how close gradients and losses are to higher precisions, scales
// independent of the division of a batch, and refusals.
#include <cmath>

#include "checkpoint/checkpoint.h"
#include "ops/fp8.h"
#include "passes/fp8.h"
#include "train/fp8_harness.h"
#include "train/run_fixture.h"
#include "train/run_state.h"

using namespace crest;
using namespace crest::test;

namespace {

Recipe block_recipe(bool llama = false) {
  Recipe r = fp8_recipe(llama);
  r.pass_settings["fp8-recipe"] = "block";
  return r;
}

// Features and tokens on either side of 128.
Recipe wide_recipe(bool llama) {
  Recipe r = block_recipe(llama);
  r.model.width = 144, r.model.heads = 6, r.model.kv_heads = llama ? 3 : 6, r.model.head_dim = 24, r.model.ff = 272;
  r.model.context = 65, r.seq = 65;
  return r;
}

// The gradients of a step, in the order of the parameters. With several micro steps there are
// several train Programs, all of them with gradients.
std::vector<std::vector<float>> gradients_of(Engine& e) {
  std::vector<std::vector<float>> all;
  for (auto& p : e.session().programs[0].program.params) all.push_back(e.rank(0).tensor(0, "grad." + p.name).floats());
  return all;
}

class Fp8Block : public ::testing::TestWithParam<bool> {};

}  // namespace

TEST_P(Fp8Block, GradientsOfEveryLayerPointWhereThoseOfFp32Do) {
  for (const char* format : {"e4m3", "e5m2"}) {
    SCOPED_TRACE(format);
    Recipe r = wide_recipe(GetParam()), exact = r;
    r.pass_settings["fp8-gradients"] = format;
    exact.precision = "fp32", exact.pass_settings = {};
    Engine e = without_update(r), reference = without_update(exact);
    e.step(0, 0, 11, source_of(r)), reference.step(0, 0, 11, source_of(exact));
    const std::vector<std::vector<float>> x = gradients_of(e), y = gradients_of(reference);
    for (size_t i = 0; i < x.size(); ++i) {
      const std::string& name = e.session().programs[0].program.params[i].name;
      EXPECT_GE(cosine(x[i], y[i]), 0.99) << name;
      EXPECT_NE(x[i], y[i]) << name;
    }
  }
}

// The four (llama: five) linear layers of a block, three matmuls each; weights have squares.
TEST_P(Fp8Block, RunsInTheLinearLayersOfTheBlocksOnly) {
  Engine e = without_update(block_recipe(GetParam()));
  const Program& p = e.session().programs[0].program;
  const int layers = 2, linears = GetParam() ? 5 : 4, inputs = 4;  // gate and up have one
  EXPECT_EQ(count(p, "linear_fp8"), layers * linears * 3);
  EXPECT_EQ(count(p, "quantize_blocks") + count(p, "norm_quantize"), layers * (2 * linears + inputs));
  EXPECT_EQ(count(p, "quantize_blocks_columns") + count(p, "norm_quantize_columns"), layers * (linears + inputs))
      << "weights are transposed in the backward half";
  EXPECT_EQ(count(p, "quantize") + count(p, "quantize_columns"), 0);
  int squares = 0;
  for (auto& i : p.code)
    if (std::string(i.op->name) == "linear_fp8") {
      squares += fp8_blocks(i.attrs) == Fp8Blocks::squares;
      EXPECT_NE(fp8_blocks(i.attrs), Fp8Blocks::none);
    }
  EXPECT_EQ(squares, layers * linears * 2);
}

// Quantization inside the kernels of norms, activations and bias gradients gives the same bits as
// separate kernels, with whole blocks and with partial ones. Only separate bias gradients are
// summed in another order. On a GPU, the bias gradients of the MLP's first layer sum numbers that
// are rounded to bf16 inside these kernels, and are not rounded outside.
TEST_P(Fp8Block, QuantizationInOtherKernelsChangesNoBit) {
  for (const char* recompute : {"none", "pointwise"})
    for (const char* gradients : {"e5m2", "e4m3"}) {
      SCOPED_TRACE(std::string(recompute) + ", " + gradients);
      Recipe r = wide_recipe(GetParam());
      r.recompute = recompute, r.pass_settings["fp8-gradients"] = gradients;
      Recipe apart = r, tensors = r;
      apart.disabled_passes = {"quantization"}, tensors.pass_settings["fp8-recipe"] = "tensor";
      Engine e = without_update(r), other = without_update(apart);
      const Program &p = e.session().programs[0].program, &q = other.session().programs[0].program;
      EXPECT_EQ(count(p, "norm") + count(p, "add_norm"), 1);  // ln_f
      EXPECT_EQ(count(p, "norm_quantize"), 4);
      EXPECT_EQ(count(q, "norm_quantize"), 0);
      auto bodies = [](const Program& of, const char* op) {
        return std::count_if(of.code.begin(), of.code.end(), [&](auto& i) { return i.body && count(*i.body, op); });
      };
      Engine as_tensors = without_update(tensors);
      const Program& t = as_tensors.session().programs[0].program;
      EXPECT_EQ(bodies(p, "quantize_blocks"), bodies(t, "quantize"));
      EXPECT_EQ(bodies(p, "quantize_blocks_columns"), bodies(t, "quantize_columns"));
      EXPECT_EQ(count(p, "norm_quantize_columns"), count(t, "norm_quantize_columns"));
      // A GPU has no kernel for a quantized and kept SwiGLU, nor for half of its gradient.
      const bool apart_on_gpu = on_gpu() && GetParam() && r.recompute == "none";
      EXPECT_GE(bodies(p, "quantize_blocks"), apart_on_gpu ? 0 : 4);
      EXPECT_EQ(bodies(q, "quantize_blocks"), 0);
      EXPECT_EQ(fp8_elements(p), fp8_elements(q));
      EXPECT_EQ(e.step(0, 0, 11, source_of(r)).loss, other.step(0, 0, 11, source_of(apart)).loss);
      const std::vector<std::vector<float>> x = gradients_of(e), y = gradients_of(other);
      for (size_t i = 0; i < x.size(); ++i) {
        const std::string& name = p.params[i].name;
        if (name.ends_with("qkv.bias") || name.ends_with("proj.bias"))
          EXPECT_GE(cosine(x[i], y[i]), 0.999999) << name;
        else if (on_gpu() && name.ends_with("fc.bias"))
          EXPECT_GE(cosine(x[i], y[i]), 0.99999) << name;
        else
          EXPECT_EQ(x[i], y[i]) << name;
      }
    }
}

// If 128 divides the tokens of a sample, every value is quantized alike in any split of the batch
// (tests/ops/fp8_blocks.cpp). With 96 tokens, blocks have tokens of two samples. But scales matter
// only to numbers that are tiny in their block. So gradients differ by the order of sums, with some
// 14 bits in tensor cores.
TEST_P(Fp8Block, GradientsDoNotDependOnHowTheBatchIsDivided) {
  struct Split {
    int64_t batch, micro_steps;
    int ranks;
  };
  for (int64_t tokens : {128, 96}) {
    std::vector<std::vector<float>> first;
    const double allowed = on_gpu() ? std::ldexp(1, -11) : 1e-5;
    for (auto [batch, micro_steps, ranks] : {Split{4, 1, 1}, {2, 2, 1}, {1, 4, 1}, {2, 1, 2}, {1, 2, 2}}) {
      SCOPED_TRACE(std::to_string(tokens) + " tokens, " + std::to_string(micro_steps) + " micro steps, " +
                   std::to_string(ranks) + " ranks");
      Recipe r = block_recipe(GetParam());
      r.model.context = tokens, r.seq = tokens;
      r.batch = batch, r.grad_accumulation = micro_steps, r.data_parallel = ranks;
      if (ranks > 1) r.pass_settings["reduce"] = "each";  // gradients available by name
      Engine e = without_update(r);
      e.step(0, 0, 11, source_of(r));
      const std::vector<std::vector<float>> all = gradients_of(e);
      if (first.empty()) first = all;
      for (size_t i = 0; i < all.size(); ++i) {
        double square = 0, size = 0;
        for (size_t k = 0; k < all[i].size(); ++k)
          square += std::pow(double(all[i][k]) - first[i][k], 2), size += std::pow(double(first[i][k]), 2);
        EXPECT_LT(std::sqrt(square / size), allowed) << e.session().programs[0].program.params[i].name;
      }
    }
  }
}

// The same if the weights quantized by the first micro step serve the other micro steps.
TEST_P(Fp8Block, MicroStepsAndRanksTrainAlike) {
  std::vector<double> losses;
  for (auto [batch, micro_steps, ranks] : {std::tuple{4, 1, 1}, {1, 4, 1}, {1, 2, 2}}) {
    Recipe r = block_recipe(GetParam());
    r.batch = batch, r.grad_accumulation = micro_steps, r.data_parallel = ranks;
    Engine e = make_engine(r);
    for (size_t s = 0; s < 4; ++s) {
      StepResult step = e.step(int64_t(s), 1e-3, 11, source_of(r));
      if (losses.size() <= s) losses.push_back(step.loss);
      EXPECT_NEAR(step.loss, losses[s], 1e-3 * losses[s]);
      EXPECT_EQ(step.saturated, 0);
      EXPECT_GE(step.vanished, 0);
      EXPECT_LT(step.vanished, 0.05);
    }
  }
}

TEST_P(Fp8Block, HoldsWhatWasPlanned) {
  for (int64_t steps : {1, 3})
    for (const char* recompute : {"none", "pointwise", "selective", "full"})
      for (const char* fusion : {"on", "off"}) {
        Recipe r = block_recipe(GetParam());
        r.grad_accumulation = steps, r.recompute = recompute, r.fusion = fusion;
        SessionUse use;
        use.train = use.update = use.validation = true;
        CompiledSession s = compile(r, crest::test::test_device(2), session_programs(r, use));
        Executor e(s);
        EXPECT_EQ(e.held_bytes(), s.planned_bytes());
      }
}

INSTANTIATE_TEST_SUITE_P(Models, Fp8Block, ::testing::Bool(),
                         [](auto& info) { return std::string(info.param ? "llama" : "gpt2"); });

TEST(Fp8BlockLoss, FollowsThoseOfBf16AndOfScalesOfTensors) {
  Recipe r = block_recipe(), tensor = r, half = r;
  tensor.pass_settings = {}, half.pass_settings = {}, half.precision = "bf16";
  const int steps = 200;
  Trained a = train(r, steps, 3e-3), b = train(half, steps, 3e-3), c = train(tensor, steps, 3e-3);
  EXPECT_LT(late_loss(b), 0.6 * b.losses.front());
  for (const Trained* other : {&b, &c}) {
    EXPECT_NEAR(late_loss(a), late_loss(*other), 0.02 * late_loss(*other));
    EXPECT_NEAR(a.validation, other->validation, 0.03 * other->validation);
    EXPECT_NE(a.losses, other->losses);
  }
}

TEST(Fp8BlockRecompute, ChangesNothing) {
  std::vector<double> losses;
  for (const char* recompute : {"none", "activation", "pointwise", "selective", "full"}) {
    Recipe r = block_recipe();
    r.recompute = recompute;
    Trained t = train(r, 6, 1e-3);
    if (losses.empty()) losses = t.losses;
    EXPECT_EQ(t.losses, losses) << recompute;
  }
}

TEST(Fp8BlockRefusals, NameWhatHasNoMeaning) {
  for (const char* name : {"fp8-history", "fp8-margin"}) {
    Recipe r = block_recipe();
    r.pass_settings[name] = "3";
    EXPECT_EQ(problem([&] { without_update(r); }), "--fp8-recipe block has no use for --" + std::string(name) +
                                                       " 3: its scales are those of the tensors themselves");
    r.pass_settings[name] = "1";  // the default, as a run's record has it
    EXPECT_EQ(problem([&] { without_update(r); }), "");
  }
  Recipe r = block_recipe();
  r.pass_settings["fp8-fast-accumulation"] = "forward";
  EXPECT_EQ(
      problem([&] { without_update(r); }),
      "--fp8-recipe block has no use for --fp8-fast-accumulation forward: the sum of each block is scaled, in fp32");
}

// Scales have no state, so a run may continue with the other recipe.
TEST(Fp8BlockState, IsNone) {
  Recipe blocks = block_recipe(), tensors = blocks;
  tensors.pass_settings = {};
  Engine from = make_engine(blocks), other = make_engine(tensors), to = make_engine(blocks),
         next = make_engine(tensors);
  for (int s = 0; s < 2; ++s) from.step(s, 1e-3, 11, source_of(blocks)), other.step(s, 1e-3, 11, source_of(tensors));
  auto restored = [&](Engine& engine, Engine& into, int64_t step) {
    TemporaryFolder folder;
    RunState state;
    state.step = state.last_good = step, state.seed = 11, state.threads = 2;
    save_checkpoint(contents_to_save(engine, state, "", nullptr, false), folder.path(), 0);
    Checkpoint saved = Checkpoint::open(std::string(folder.path()) + "/" + checkpoint_name(step));
    restore(into, saved);
  };
  EXPECT_FALSE(from.rank(0).has(from.session().find("update"), fp8_amax));
  restored(from, to, 2);
  EXPECT_EQ(from.step(2, 1e-3, 11, source_of(blocks)).loss, to.step(2, 1e-3, 11, source_of(blocks)).loss);
  EXPECT_EQ(from.step(3, 1e-3, 11, source_of(blocks)).loss, to.step(3, 1e-3, 11, source_of(blocks)).loss);
  restored(from, next, 4);
  std::vector<float> amax = next.rank(0).tensor(next.session().find("update"), fp8_amax).floats();
  EXPECT_EQ(amax, std::vector<float>(amax.size()));
  restored(other, to, 2);
  EXPECT_TRUE(std::isfinite(to.step(2, 1e-3, 11, source_of(blocks)).loss));
}
