// Training with --precision fp8: how close gradients and losses are to higher precisions, scales
// independent of the division of a batch, refusals and reports.
#include <cmath>
#include <set>

#include "checkpoint/checkpoint.h"
#include "core/float8.h"
#include "ops/fp8.h"
#include "passes/fp8.h"
#include "train/fp8_harness.h"
#include "train/fp8_watch.h"
#include "train/run_fixture.h"
#include "train/run_state.h"

using namespace crest;
using namespace crest::test;

namespace {

class Fp8 : public ::testing::TestWithParam<bool> {};

}  // namespace

// Twice: with scales of the tensors themselves, and with scales from the step before (from this
// same step).
TEST_P(Fp8, GradientsOfEveryLayerPointWhereThoseOfFp32Do) {
  Recipe r = fp8_recipe(GetParam()), exact = r;
  exact.precision = "fp32";
  Engine e = without_update(r), reference = without_update(exact);
  reference.step(0, 0, 11, source_of(exact));
  for (bool delayed : {false, true}) {
    SCOPED_TRACE(delayed ? "delayed" : "current");
    double loss = e.step(0, 0, 11, source_of(r)).loss;
    EXPECT_TRUE(std::isfinite(loss));
    for (auto& p : e.session().programs[0].program.params) {
      std::vector<float> x = floats(e, "train", "grad." + p.name), y = floats(reference, "train", "grad." + p.name);
      EXPECT_GE(cosine(x, y), 0.99) << p.name;
      EXPECT_NE(x, y) << p.name;
    }
    std::vector<float> record = floats(e, "train", "fp8.record");
    e.rank(0).tensor(0, fp8_amax).set_floats(record.data(), int64_t(record.size()));
  }
}

// The four (llama: five) linear layers of a block, three matmuls each, and nothing else.
TEST_P(Fp8, RunsInTheLinearLayersOfTheBlocksOnly) {
  Engine e = without_update(fp8_recipe(GetParam()));
  const Program& p = e.session().programs[0].program;
  const int layers = 2, linears = GetParam() ? 5 : 4;
  EXPECT_EQ(count(p, "linear_fp8"), layers * linears * 3);
  // Gate and up have one input.
  EXPECT_EQ(count(p, "quantize") + count(p, "norm_quantize"), layers * (3 * linears - (GetParam() ? 1 : 0)));
  // Transposes of inputs and of weights.
  EXPECT_EQ(count(p, "quantize_columns") + count(p, "norm_quantize_columns"),
            layers * (2 * linears - (GetParam() ? 1 : 0)));
  for (auto& i : p.code)
    if (i.op->op_class == OpClass::contraction && std::string(i.op->name) != "linear_fp8") {
      EXPECT_LT(i.origin.layer(), 0) << i.op->name << " at " << i.origin.text();
    }
}

// Quantization inside the kernels of norms, activations and bias gradients gives the same bits as
// separate kernels. There are two exceptions. The bias gradients of qkv are summed in another
// order. On a GPU, the bias gradients of the MLP's first layer sum numbers that are rounded to bf16
// inside these kernels, and are not rounded outside.
TEST_P(Fp8, QuantizationInOtherKernelsChangesNoBit) {
  for (const char* recompute : {"none", "pointwise"}) {
    SCOPED_TRACE(recompute);
    Recipe r = fp8_recipe(GetParam()), apart = r;
    r.fusion = apart.fusion = "on", r.recompute = apart.recompute = recompute;
    apart.disabled_passes = {"quantization"};
    Engine e = without_update(r), other = without_update(apart);
    const Program &p = e.session().programs[0].program, &q = other.session().programs[0].program;
    EXPECT_EQ(count(p, "norm") + count(p, "add_norm"), 1);  // ln_f
    EXPECT_EQ(count(p, "norm_quantize"), 4);
    EXPECT_EQ(count(q, "norm_quantize"), 0);
    EXPECT_EQ(fp8_elements(p), fp8_elements(q));
    for (bool delayed : {false, true}) {
      SCOPED_TRACE(delayed ? "delayed" : "current");
      EXPECT_EQ(e.step(0, 0, 11, source_of(r)).loss, other.step(0, 0, 11, source_of(r)).loss);
      for (auto& param : p.params) {
        std::vector<float> x = floats(e, "train", "grad." + param.name),
                           y = floats(other, "train", "grad." + param.name);
        if (param.name.ends_with("qkv.bias"))
          EXPECT_GE(cosine(x, y), 0.999999) << param.name;
        else if (on_gpu() && param.name.ends_with("fc.bias"))
          EXPECT_GE(cosine(x, y), 0.99999) << param.name;
        else
          EXPECT_EQ(x, y) << param.name;
      }
      for (Engine* engine : {&e, &other}) {
        std::vector<float> record = floats(*engine, "train", "fp8.record");
        engine->rank(0).tensor(0, fp8_amax).set_floats(record.data(), int64_t(record.size()));
      }
      EXPECT_EQ(floats(e, "train", "fp8.record"), floats(other, "train", "fp8.record"));
    }
  }
}

// The setting marks the matmuls of one half or of both. A CPU always sums in fp32, so its bits are
// the same.
TEST_P(Fp8, FastAccumulationIsOfTheMatmulsThatItNames) {
  std::vector<double> losses;
  for (auto [fast, halves] : {std::pair{"none", 0}, {"forward", 1}, {"all", 3}}) {
    SCOPED_TRACE(fast);
    Recipe r = fp8_recipe(GetParam());
    r.pass_settings["fp8-fast-accumulation"] = fast;
    Engine e = without_update(r);
    const Program& p = e.session().programs[0].program;
    int marked = 0, all = 0;
    for (auto& i : p.code)
      if (std::string_view(i.op->name) == "linear_fp8") {
        const bool mark = fp8_fast_accumulation(i.attrs);
        ++all, marked += mark;
        EXPECT_EQ(mark, halves == 3 || (halves == 1 && i.phase == Phase::forward));
      }
    EXPECT_EQ(marked, all / 3 * halves);
    losses.push_back(e.step(0, 0, 11, source_of(r)).loss);
    EXPECT_NEAR(losses.back(), losses[0], on_gpu() ? 1e-3 * losses[0] : 0);
  }
}

// 8-bit weights give the same bits kept or made again. Kept ones take a byte for each weight, or
// two with micro steps.
TEST_P(Fp8, WeightsMadeAgainAreThoseThatWereKept) {
  for (auto [fusion, recompute] : {std::pair{"on", "auto"}, {"off", "auto"}, {"on", "full"}})
    for (int64_t micro_steps : {1, 3}) {
      if (recompute == std::string("full") && micro_steps == 1) continue;  // nothing of its own
      Recipe kept = fp8_recipe(GetParam()), again = kept, automatic = kept;
      for (Recipe* r : {&kept, &again, &automatic})
        r->fusion = fusion, r->recompute = recompute, r->grad_accumulation = micro_steps;
      kept.pass_settings["fp8-weights"] = "keep", again.pass_settings["fp8-weights"] = "again";
      Trained a = train(kept, 4, 1e-2), b = train(again, 4, 1e-2);
      EXPECT_EQ(a.losses, b.losses);
      EXPECT_EQ(distance(a, b), 0);
      auto bytes = [](const Recipe& r) {
        SessionUse use;
        use.train = use.update = true;
        return compile(r, crest::test::test_device(2), session_programs(r, use)).planned_bytes();
      };
      EXPECT_LT(bytes(again), bytes(kept));
      EXPECT_EQ(bytes(automatic), bytes(micro_steps == 1 ? again : kept));
    }
}

// With --recompute full the backward half makes the rows of weights again. Kernels of gradients
// quantize as many tensors as with kept weights.
TEST_P(Fp8, FullRecomputeKeepsNoRowsOfWeights) {
  Recipe r = fp8_recipe(GetParam());
  r.fusion = "on", r.recompute = "full";
  auto program = [&](const char* weights) {
    r.pass_settings["fp8-weights"] = weights;
    SessionUse use;
    use.train = true;
    return compile(r, crest::test::test_device(2), session_programs(r, use)).programs[0].program;
  };
  auto quantizes = [](const Instr& i) { return std::string_view(i.op->name) == "quantize"; };
  auto of_gradients = [&](const Program& p) {
    return std::count_if(p.code.begin(), p.code.end(),
                         [&](auto& i) { return quantizes(i) && i.phase == Phase::backward; });
  };
  const Program p = program("again");
  int again = 0;
  for (auto& i : p.code) {
    if (!quantizes(i) || p.at(i.in[0]).role != Role::weight) continue;
    again += i.phase == Phase::recompute;
    for (auto& reader : p.code)
      if (std::count(reader.in.begin(), reader.in.end(), i.out[0])) {
        EXPECT_EQ(reader.phase, i.phase) << p.at(i.out[0]).name;
      }
  }
  EXPECT_EQ(again, 2 * (GetParam() ? 4 : 3)) << "of two layers, all but mlp.proj";
  EXPECT_EQ(of_gradients(p), of_gradients(program("keep")));
}

// 8-bit weights are the same with ranks that gather them for each half of a step.
TEST_P(Fp8, WeightsAreMadeAgainFromSharedOnes) {
  std::vector<double> losses;
  for (const char* shard : {"none", "weights"})
    for (const char* weights : {"keep", "again"}) {
      SCOPED_TRACE(std::string(shard) + ", " + weights);
      Recipe r = fp8_recipe(GetParam());
      r.batch = 2, r.data_parallel = 2, r.clip = 0;
      r.pass_settings["shard"] = shard, r.pass_settings["bucket"] = "20kB", r.pass_settings["reduce"] = "bucket";
      r.pass_settings["fp8-weights"] = weights;
      Engine e = make_engine(r);
      std::vector<double> own;
      for (int s = 0; s < 3; ++s) own.push_back(e.step(s, 1e-3, 11, source_of(r)).loss);
      if (losses.empty()) losses = own;
      EXPECT_EQ(own, losses);
    }
}

// In 8 bits, the inputs of the gradients of GELU and SwiGLU take half the memory. The loss of a
// first step is the same, and the gradients point in the direction of bf16's.
TEST_P(Fp8, ActivationsMayBeKeptInEightBits) {
  for (const char* recompute : {"none", "pointwise"})
    for (const char* fusion : {"on", "off"}) {
      SCOPED_TRACE(std::string(recompute) + ", fusion " + fusion);
      Recipe r = fp8_recipe(GetParam()), half = r;
      r.fusion = half.fusion = fusion, r.recompute = half.recompute = recompute;
      r.pass_settings["fp8-activations"] = "e4m3";
      Engine e = without_update(r), other = without_update(half);
      const Program &p = e.session().programs[0].program, &q = other.session().programs[0].program;
      const int kept = 2 * (GetParam() ? 2 : 1);  // gate and up, or one
      EXPECT_EQ(count(p, "quantize_rows"), kept);
      EXPECT_EQ(count(p, "dequantize"), kept);
      EXPECT_EQ(count(q, "quantize_rows") + count(q, "dequantize"), 0);
      int64_t elements = r.batch * r.seq_length() * r.model.ff * kept, rows = r.batch * r.seq_length() * kept;
      int64_t saved = other.session().kept_bytes() - e.session().kept_bytes();
      EXPECT_NEAR(double(saved), double(elements - rows * int64_t(sizeof(float))), 256.0 * 4 * kept);
      EXPECT_EQ(e.step(0, 0, 11, source_of(r)).loss, other.step(0, 0, 11, source_of(half)).loss);
      for (auto& param : p.params) {
        std::vector<float> x = floats(e, "train", "grad." + param.name),
                           y = floats(other, "train", "grad." + param.name);
        EXPECT_GE(cosine(x, y), 0.995) << param.name;
      }
    }
}

// One micro batch, several, and two ranks give the same scales in every step, and the same losses
// within the rounding of results to bf16.
TEST_P(Fp8, ScalesDoNotDependOnHowTheBatchIsDivided) {
  struct Split {
    int64_t batch, micro_steps;
    int ranks;
  };
  std::vector<std::vector<int>> all;
  std::vector<double> losses;
  for (auto [batch, micro_steps, ranks] : {Split{4, 1, 1}, {2, 2, 1}, {1, 4, 1}, {2, 1, 2}, {1, 2, 2}}) {
    Recipe r = fp8_recipe(GetParam());
    r.batch = batch, r.grad_accumulation = micro_steps, r.data_parallel = ranks;
    Engine e = make_engine(r);
    std::vector<int> exponents;
    for (int s = 0; s < 4; ++s) {
      double loss = e.step(s, 1e-3, 11, source_of(r)).loss;
      if (all.empty()) losses.push_back(loss);
      EXPECT_NEAR(loss, losses[size_t(s)], 1e-3 * loss);
      for (float a : floats(e, "update", fp8_amax)) {
        EXPECT_TRUE(std::isfinite(a));
        exponents.push_back(a > 0 ? scale_exponent<float8_e4m3>(a, 1) : -1000);
      }
      for (int other = 1; other < ranks; ++other)
        EXPECT_EQ(e.rank(other).tensor(e.session().find("update"), fp8_amax).floats(), floats(e, "update", fp8_amax));
    }
    all.push_back(exponents);
    EXPECT_GT(std::set<int>(exponents.begin(), exponents.end()).size(), 4u);
    EXPECT_EQ(all.back(), all.front()) << batch << " x " << micro_steps << " x " << ranks;
  }
}

TEST_P(Fp8, HoldsWhatWasPlanned) {
  for (int64_t steps : {1, 3})
    for (const char* recompute : {"none", "pointwise", "selective", "full"})
      for (const char* fusion : {"on", "off"}) {
        Recipe r = fp8_recipe(GetParam());
        r.grad_accumulation = steps, r.recompute = recompute, r.fusion = fusion;
        SessionUse use;
        use.train = use.update = use.validation = true;
        CompiledSession s = compile(r, crest::test::test_device(2), session_programs(r, use));
        Executor e(s);
        EXPECT_EQ(e.held_bytes(), s.planned_bytes());
        int64_t sum = 0;
        for (int64_t b : s.by_category()) sum += b;
        EXPECT_EQ(sum, s.planned_bytes());
      }
}

// With every way of summing, and with shared updates. All collectives of a Program are on one
// stream, because on a CPU another thread runs the communication stream. With two threads, the
// order would differ from rank to rank.
TEST_P(Fp8, RanksAgreeHoweverTheySum) {
  std::vector<double> losses;
  std::vector<float> amax;
  for (const char* reduce : {"flat", "each", "overlap", "bucket"})
    for (const char* shard : {"none", "optimizer"}) {
      Recipe r = fp8_recipe(GetParam());
      r.batch = 2, r.data_parallel = 2;
      r.pass_settings["reduce"] = reduce, r.pass_settings["bucket"] = "4kB", r.pass_settings["shard"] = shard;
      bool whole_groups = std::string(reduce) == "flat" || std::string(reduce) == "bucket";
      if (std::string(shard) != "none" && !whole_groups) continue;  // refused
      SCOPED_TRACE(std::string(reduce) + ", shard " + shard);
      Engine e = make_engine(r);
      std::set<Stream> streams;
      for (auto& i : e.session().programs[0].program.code)
        if (i.op->op_class == OpClass::communication) streams.insert(i.stream);
      ASSERT_EQ(streams.size(), 1u);
      std::vector<double> own;
      for (int s = 0; s < 3; ++s) own.push_back(e.step(s, 1e-3, 11, source_of(r)).loss);
      if (losses.empty()) losses = own, amax = floats(e, "update", fp8_amax);
      EXPECT_EQ(own, losses);
      for (int rank : {0, 1}) EXPECT_EQ(e.rank(rank).tensor(e.session().find("update"), fp8_amax).floats(), amax);
    }
}

INSTANTIATE_TEST_SUITE_P(Models, Fp8, ::testing::Bool(),
                         [](auto& info) { return std::string(info.param ? "llama" : "gpt2"); });

TEST(Fp8Loss, FollowsThatOfBf16) {
  Recipe r = fp8_recipe(), half = r, kept = r;
  half.precision = "bf16";
  kept.pass_settings["fp8-activations"] = "e4m3";
  const int steps = 200;
  Trained a = train(r, steps, 3e-3), b = train(half, steps, 3e-3), c = train(kept, steps, 3e-3);
  EXPECT_LT(late_loss(b), 0.6 * b.losses.front());
  EXPECT_NEAR(late_loss(a), late_loss(b), 0.02 * late_loss(b));
  EXPECT_NEAR(a.validation, b.validation, 0.03 * b.validation);
  EXPECT_NE(a.losses, b.losses);
  EXPECT_NEAR(late_loss(c), late_loss(b), 0.02 * late_loss(b));
  EXPECT_NEAR(c.validation, b.validation, 0.03 * b.validation);
  EXPECT_NE(c.losses, a.losses);
}

// Recompute repeats quantized values with their original scale.
TEST(Fp8Recompute, ChangesNothing) {
  std::vector<double> losses;
  for (const char* recompute : {"none", "activation", "pointwise", "selective", "full"}) {
    Recipe r = fp8_recipe();
    r.recompute = recompute;
    Trained t = train(r, 6, 1e-3);
    if (losses.empty()) losses = t.losses;
    EXPECT_EQ(t.losses, losses) << recompute;
  }
}

// 195 rows: no multiple of 16.
TEST(Fp8Sizes, OddNumbersOfTokensArePadded) {
  for (bool llama : {false, true}) {
    Recipe r = fp8_recipe(llama), half = r;
    r.model.context = 65, r.batch = 3, r.seq = 65;
    half = r;
    half.precision = "bf16";
    Trained a = train(r, 5, 1e-3), b = train(half, 5, 1e-3);
    for (size_t s = 0; s < a.losses.size(); ++s) EXPECT_NEAR(a.losses[s], b.losses[s], 0.01 * b.losses[s]);
  }
}

TEST(Fp8Sizes, LayersWhoseFeaturesDoNotFitStayBf16) {
  Recipe r = fp8_recipe();
  r.model.ff = 200;
  Engine e = without_update(r);
  const Program& p = e.session().programs[0].program;
  EXPECT_EQ(count(p, "linear_fp8"), 2 * 2 * 3);
  EXPECT_TRUE(std::isfinite(e.step(0, 0, 11, source_of(r)).loss));
  r.model.width = 24, r.model.heads = 3, r.model.kv_heads = 3, r.model.head_dim = 8;
  EXPECT_EQ(problem([&] { without_update(r); }),
            "no linear layer of this model can run in fp8: none has features in multiples of 16");
}

TEST(Fp8Refusals, SayWhatIsMissing) {
  Recipe r = fp8_recipe();
  r.policy = "autocast";
  EXPECT_EQ(problem([&] { resolve(r, crest::test::test_device(1)); }), "--precision fp8 needs --policy pure");
  r.policy = "pure";
  Device d = crest::test::test_device(1);
  d.kind = "cuda", d.name = "NVIDIA A100", d.sm = 80, d.native_bf16 = true;
  EXPECT_EQ(problem([&] { resolve(r, d); }), "NVIDIA A100 does not support fp8");
  d.sm = 89;
  EXPECT_EQ(problem([&] { resolve(r, d); }), "");
}

// With the history of the scales, a continued run is the same. Without it, a run starts like the
// first step.
TEST(Fp8State, IsReadBackOrStartsAnew) {
  Recipe r = fp8_recipe(), half = r;
  half.precision = "bf16";
  Engine from = make_engine(r), none = make_engine(half), to = make_engine(r);
  for (int s = 0; s < 2; ++s) from.step(s, 1e-3, 11, source_of(r)), none.step(s, 1e-3, 11, source_of(half));
  auto continue_from = [&](Engine& engine) {
    TemporaryFolder folder;
    RunState state;
    state.step = 2, state.seed = 11, state.threads = 2;
    save_checkpoint(contents_to_save(engine, state, "", nullptr, false), folder.path(), 0);
    restore(to, Checkpoint::open(std::string(folder.path()) + "/step-000002"));
    return floats(to, "update", fp8_amax);
  };
  std::vector<float> amax = floats(from, "update", fp8_amax);
  EXPECT_GT(amax[0], 0);
  EXPECT_EQ(continue_from(from), amax);
  EXPECT_EQ(continue_from(none), std::vector<float>(amax.size()));
}

// Row 0 of the history scales: the largest of the last steps. A checkpoint has all rows; a run with
// another length scales by the common steps.
TEST(Fp8State, OfALongerHistoryIsReadBack) {
  Recipe r = fp8_recipe();
  r.pass_settings["fp8-history"] = "3";
  Engine from = make_engine(r), to = make_engine(r);
  std::vector<std::vector<float>> steps;
  size_t slots = 0;
  for (int s = 0; s < 4; ++s) {
    from.step(s, 1e-2, 11, source_of(r));
    std::vector<float> amax = floats(from, "update", fp8_amax);
    slots = amax.size() / 3;
    steps.emplace_back(amax.begin() + int64_t(slots), amax.begin() + 2 * int64_t(slots));
    for (size_t i = 0; i < slots; ++i) {
      float most = 0;
      for (size_t k = steps.size() > 3 ? steps.size() - 3 : 0; k < steps.size(); ++k)
        most = std::max(most, steps[k][i]);
      EXPECT_EQ(amax[i], most) << "step " << s << ", slot " << i;
    }
  }
  TemporaryFolder folder;
  RunState state;
  state.step = 4, state.seed = 11, state.threads = 2;
  save_checkpoint(contents_to_save(from, state, "", nullptr, false), folder.path(), 0);
  Checkpoint saved = Checkpoint::open(std::string(folder.path()) + "/step-000004");
  std::vector<float> amax = floats(from, "update", fp8_amax);
  restore(to, saved);
  EXPECT_EQ(floats(to, "update", fp8_amax), amax);
  for (size_t length : {1, 2, 4, 6}) {
    SCOPED_TRACE(length);
    r.pass_settings["fp8-history"] = std::to_string(length);
    Engine other = make_engine(r);
    restore(other, saved);
    std::vector<std::vector<float>> known = {steps[1], steps[2], steps[3]};
    for (int s = 4; s < 10; ++s) {
      amax = floats(other, "update", fp8_amax);
      for (size_t i = 0; i < slots; ++i) {
        float most = 0;
        for (size_t k = known.size() > length ? known.size() - length : 0; k < known.size(); ++k)
          most = std::max(most, known[k][i]);
        ASSERT_EQ(amax[i], most) << "before step " << s << ", slot " << i;
      }
      if (length == 1) break;  // row 0 is all it has
      other.step(s, 1e-2, 11, source_of(r));
      amax = floats(other, "update", fp8_amax);
      known.emplace_back(amax.begin() + int64_t(slots), amax.begin() + 2 * int64_t(slots));
    }
  }
}

TEST(Fp8Watch, WarnsWhenLossesGrow) {
  Fp8Watch watch;
  auto windows = [&](double saturated, double vanished) {
    int warnings = 0;
    StepRow row;
    row.saturated = saturated, row.vanished = vanished;
    for (int s = 0; s < Fp8Watch::window; ++s) warnings += watch.add(row).has_value();
    return warnings;
  };
  EXPECT_EQ(windows(1e-5, 0.02), 0);
  EXPECT_EQ(windows(1.9e-5, 0.03), 0);
  EXPECT_EQ(windows(1e-4, 0.03), 1) << "saturated";
  EXPECT_EQ(windows(1e-4, 0.03), 0) << "as before";
  EXPECT_EQ(windows(1e-4, 0.2), 1) << "vanished";
  EXPECT_EQ(windows(-1, -1), 0) << "not fp8";
  StepRow row;
  row.saturated = 1e-3, row.vanished = 0.5, row.vanished_most = "h.0.mlp.fc.weight.dy";
  std::optional<std::string> both;
  for (int s = 0; s < Fp8Watch::window; ++s) both = watch.add(row);
  ASSERT_TRUE(both.has_value());
  EXPECT_NE(both->find("0.1% of the values in fp8 are above the largest number"), std::string::npos) << *both;
  EXPECT_NE(both->find("50% of the values in fp8 became zero"), std::string::npos) << *both;
  EXPECT_NE(both->find("most zeros are in h.0.mlp.fc.weight.dy;"), std::string::npos) << *both;
  watch = {};
  int warnings = 0;
  for (int i = 0; i < 20; ++i) warnings += windows(0, 0.001 * (i + 1));
  EXPECT_EQ(warnings, 1) << "slowly";
}

// The log has both shares, only in fp8 runs.
TEST_F(RunTest, Fp8PartsAreLogged) {
  TrainOptions o = options();
  for (const char* precision : {"fp8", "bf16"}) {
    o.recipe.precision = precision;
    o.out = folder / ("run-" + std::string(precision));
    run_training(o);
    std::ifstream log(o.out + "/log.jsonl");
    bool fp8 = std::string(precision) == "fp8";
    int rows = 0;
    for (std::string line; std::getline(log, line); ++rows) {
      EXPECT_EQ(line.find("fp8_saturated") != line.npos, fp8) << line;
      EXPECT_EQ(line.find("fp8_vanished") != line.npos, fp8) << line;
    }
    EXPECT_EQ(rows, 4);
  }
}
