// Every rule of crest advise: a case with its advice, and one without.
#include <gtest/gtest.h>

#include <fstream>
#include <set>

#include "advise/advise.h"
#include "contains.h"
#include "core/temporary_folder.h"
#include "device/data_sheet.h"
#include "device/find.h"
#include "plan/recipe_settings.h"
#include "plan/search.h"
#include "plan/training_use.h"
#include "predict/known_effects.h"
#include "predict/planned_time.h"
#include "predict/step_time.h"

namespace crest::test {

namespace {

// A recipe on a device, as the command makes it. Two layers plan fast.
struct Subject {
  AdviceCase c;
  DataSheet sheet;

  Subject(const Subject&) = delete;  // the case points to the sheet

  Subject(const std::string& device, const GivenSettings& given, const std::string& mesh = "",
          const std::function<void(ModelConfig&)>& change = {}) {
    settings_of(c.given).apply({{"model", {"nano"}}, {"vocab", {"512"}}});
    c.given.model.layers = 2;
    settings_of(c.given).apply(given);
    if (change) change(c.given.model);
    c.device = find_device(device, 1);
    c.recipe = resolve(c.given, c.device);
    c.limit = int64_t(20) << 30;
    c.mesh = parse_mesh(mesh);
    if (c.device.described) sheet = find_data_sheet(device), c.sheet = &sheet;
  }
  Checked check(const std::string& id) const {
    Planner planner(c);
    for (auto& rule : rules())
      if (rule.id == id) return rule.check(c, planner);
    ADD_FAILURE() << "no rule " << id;
    return {};
  }
};

// The one finding of a rule.
Finding advice(const Subject& s, const std::string& id) {
  Checked checked = s.check(id);
  EXPECT_EQ(checked.status, RuleStatus::advice) << id << ": " << checked.text;
  EXPECT_EQ(checked.findings.size(), 1u) << id;
  return checked.findings.empty() ? Finding{} : checked.findings[0];
}

void expect_holds(const Subject& s, const std::string& id) {
  Checked checked = s.check(id);
  EXPECT_EQ(checked.status, RuleStatus::holds)
      << id << ": " << checked.text << (checked.findings.empty() ? "" : checked.findings[0].condition);
  EXPECT_NE(checked.text, "") << id;
}

void expect_not_applicable(const Subject& s, const std::string& id) {
  Checked checked = s.check(id);
  EXPECT_EQ(checked.status, RuleStatus::not_applicable) << id << ": " << checked.text;
  EXPECT_NE(checked.text, "") << id;
}

}  // namespace

TEST(Rules, EachHasItsSourceAndIsDocumented) {
  std::ifstream in(std::string(CREST_TEST_DIR) + "/../docs/reference/advise.md");
  std::string page{std::istreambuf_iterator<char>(in), {}};
  std::set<std::string> ids;
  for (auto& rule : rules()) {
    EXPECT_TRUE(ids.insert(rule.id).second) << rule.id;
    EXPECT_NE(std::string(rule.section), "");
    EXPECT_TRUE(contains(page, std::string("| `") + rule.id + "` |"))
        << rule.id << " is not in docs/reference/advise.md";
  }
}

TEST(Rules, SizesThatTensorCoresNeed) {
  Subject odd(
      "h100",
      {{"vocab", {"50257"}}, {"pad-vocab", {"1"}}, {"seq", {"100"}}, {"batch", {"1"}}, {"attention", {"naive"}}}, "",
      [](ModelConfig& m) { m.heads = m.kv_heads = 4, m.head_dim = 25, m.width = 100; });
  Finding vocabulary = advice(odd, "vocabulary");
  EXPECT_TRUE(contains(vocabulary.condition, "50257"));
  EXPECT_EQ(vocabulary.recipe->pad_vocab, 128);
  EXPECT_TRUE(contains(vocabulary.change, "50304"));
  EXPECT_TRUE(contains(vocabulary.change, unpadded_vocabulary.text)) << "no prediction knows its gain";
  // 100 tokens and a batch of 1: 16 x 100 would be aligned, but is a far larger batch.
  Finding tokens = advice(odd, "tokens");
  EXPECT_EQ(tokens.recipe->seq_length(), 64);
  EXPECT_TRUE(contains(advice(odd, "head-size").condition, "25"));
  Checked widths = odd.check("product-alignment");  // the model's, and the one of queries, keys and values
  ASSERT_EQ(widths.findings.size(), 2u);
  EXPECT_TRUE(contains(widths.findings[0].condition, "the model's width = 100 (h.*.attn"));
  EXPECT_TRUE(contains(widths.findings[0].condition, "tensor cores load multiples of 8"));
  EXPECT_EQ(widths.findings[0].change, "the model's width = 64 or 128");
  EXPECT_TRUE(contains(widths.findings[1].condition, "queries, keys and values = 300"));

  Subject even("h100", {{"seq", {"128"}}, {"batch", {"2"}}}, "",
               [](ModelConfig& m) { m.head_dim = 64, m.heads = m.kv_heads = 2; });
  for (const char* id : {"vocabulary", "tokens", "head-size", "head-ratio", "product-alignment", "fallback-kernels"})
    expect_holds(even, id);
  for (const char* id : {"vocabulary", "tokens", "head-size", "product-alignment", "tile-quantization"})
    expect_not_applicable(Subject("cpu", {}), id);
  expect_not_applicable(Subject("h100", {{"precision", {"fp32"}}}), "tokens");
}

// Alignment depends on generation and type: 16 bytes on a V100 and an L40S, 128 on an A100 by
// NVIDIA's guide and on an H100 by measurement.
TEST(Rules, AlignmentIsOfTheGenerationAndTheType) {
  GivenSettings g = {{"seq", {"40"}}, {"batch", {"1"}}, {"precision", {"fp16"}}};
  expect_holds(Subject("v100", g), "tokens");
  expect_holds(Subject("l40s", g), "tokens");
  const std::string a100 = advice(Subject("a100", g), "tokens").condition;
  for (const char* part : {"64 elements of fp16", "table 1, for the A100"}) EXPECT_TRUE(contains(a100, part)) << a100;
  const std::string h100 = advice(Subject("h100", g), "tokens").condition;
  for (const char* part : {"64 elements of fp16", hopper_alignment.text}) EXPECT_TRUE(contains(h100, part)) << h100;
  EXPECT_TRUE(contains(advice(Subject("b200", g), "tokens").condition, "not measured on this one"));
  g["precision"] = {"tf32"}, g["seq"] = {"96"};
  expect_holds(Subject("a100", g), "tokens");
  g["precision"] = {"fp8"}, g["seq"] = {"64"};
  EXPECT_TRUE(contains(advice(Subject("h100", g), "tokens").condition, "128 elements of fp8"));
  g["seq"] = {"128"}, g["attention"] = {"naive"};
  expect_holds(Subject("h100", g), "tokens");
  bool fp8 = false;
  Subject products("h100", g);
  for (auto& p : Planner(products.c).products())
    fp8 |= p.op == "linear_fp8" && p.m == 128 && p.k > 0 && p.element == 1 && p.tiles() > 0;
  EXPECT_TRUE(fp8);
  // Attention stays in bf16.
  expect_holds(Subject("h100", g, "", [](ModelConfig& m) { m.head_dim = 64, m.heads = m.kv_heads = 2; }), "head-size");
}

TEST(Rules, ALargerBatchAlignsTheTokensWhereItIsNear) {
  EXPECT_EQ(advice(Subject("h100", {{"seq", {"32"}}, {"batch", {"3"}}}), "tokens").recipe->batch, 4);
}

TEST(Rules, HeadsAndSwiglu) {
  Finding heads = advice(Subject("h100", {}), "head-ratio");  // 4 heads of 32
  EXPECT_EQ(heads.recipe->model.heads, 2);
  EXPECT_EQ(heads.recipe->model.head_dim, 64);
  EXPECT_TRUE(heads.other_model);
  auto swiglu = [](int64_t ff) {
    return [ff](ModelConfig& m) { m.activation = ActivationKind::swiglu, m.bias = false, m.ff = ff; };
  };
  EXPECT_EQ(advice(Subject("h100", {}, "", swiglu(341)), "mlp-width").recipe->model.ff, 384);
  EXPECT_EQ(advice(Subject("h100", {}, "tensor=4", swiglu(384)), "mlp-width").recipe->model.ff, 512);
  expect_holds(Subject("h100", {}, "", swiglu(384)), "mlp-width");
  expect_not_applicable(Subject("h100", {}), "mlp-width");
}

// 1.176 ms with heads of 80, 0.51 with 64: measured on Hopper. Its kernels take 64 and 128.
TEST(Rules, FlashAttentionOnHopperHasItsHeadSizes) {
  auto heads = [](int64_t heads, int64_t size) {
    return [=](ModelConfig& m) { m.heads = m.kv_heads = heads, m.head_dim = size, m.width = heads * size; };
  };
  Finding odd = advice(Subject("h100", {}, "", heads(8, 80)), "head-size");
  EXPECT_TRUE(contains(odd.condition, hopper_head_sizes.text)) << odd.condition;
  EXPECT_TRUE(odd.other_model);
  EXPECT_EQ(odd.recipe->model.heads, 5);
  EXPECT_EQ(odd.recipe->model.head_dim, 128);
  EXPECT_EQ(advice(Subject("h200", {}, "", heads(4, 80)), "head-size").recipe->model.head_dim, 64) << "320 / 128";
  EXPECT_FALSE(advice(Subject("h100", {}, "", heads(1, 80)), "head-size").recipe) << "neither divides 80";
  expect_holds(Subject("h100", {}, "", heads(5, 128)), "head-size");
  expect_holds(Subject("h100", {}, "", heads(10, 64)), "head-size");
  expect_holds(Subject("a100", {}, "", heads(8, 80)), "head-size");
}

TEST(Rules, TilesAndWaves) {
  Subject small("h100", {{"seq", {"16"}}, {"batch", {"9"}}});  // 144 rows of tiles of 128
  Checked tiles = small.check("tile-quantization");
  std::string said = tiles.findings.empty() ? tiles.text : tiles.findings[0].condition;
  EXPECT_TRUE(contains(said, "tile ")) << said;
  if (tiles.status == RuleStatus::advice) {
    Planner planner(small.c);
    EXPECT_LT(*planner.tiled_ms_per_token(*tiles.findings[0].recipe), *planner.tiled_ms_per_token(small.c.given));
  }
  EXPECT_NE(small.check("wave-quantization").status, RuleStatus::not_applicable);
  StepProduct p;
  p.m = 129, p.n = 256, p.k = 64, p.tile = {128, 256, false, "given"};
  EXPECT_EQ(p.tiles(), 2);
  EXPECT_DOUBLE_EQ(p.tile_padding(), 256.0 / 129);
  p.m = 128 * 109;  // 109 tiles on 108 multiprocessors: two rounds
  EXPECT_DOUBLE_EQ(p.wave_padding(108), 2.0 * 108 / 109);
  p.tile.divides_sum = true;
  EXPECT_EQ(p.wave_padding(108), 1);
}

TEST(Rules, ProductsAreThoseOfTheProgram) {
  Subject s("h100", {{"seq", {"64"}}, {"batch", {"2"}}});
  Planner planner(s.c);
  double flops = 0, executed = 0;
  for (auto& p : planner.products()) {
    flops += p.flops();
    EXPECT_GT(p.tile.m, 0) << p.kernel;
  }
  for (auto& row : step_rows(planner.session()).instrs)
    if (row.op_class == "contraction") executed += row.flops;
  EXPECT_NEAR(flops / executed, 1, 0.02);  // biases and activations are FLOPs too
}

TEST(Rules, FallbackKernelsAreNamedWithTheReason) {
  Finding f = advice(Subject("h100", {{"kernel", {"attention=cuda.attention.generic"}}}), "fallback-kernels");
  EXPECT_TRUE(contains(f.condition, "cuda.attention.generic runs h.*.attn"));
  EXPECT_TRUE(contains(f.change, "--kernel excludes it"));
  Finding wide = advice(Subject("cpu", {{"kernel", {"linear=cpu.*.reference"}}}), "fallback-kernels");
  EXPECT_TRUE(contains(wide.condition, "reference"));
}

TEST(Rules, BatchIsAsLargeAsItHelps) {
  Subject s("h100", {{"seq", {"64"}}, {"batch", {"1"}}});
  Finding more = advice(s, "micro-batch");
  EXPECT_GT(more.recipe->batch, 1);
  EXPECT_TRUE(more.other_model);  // a step has more tokens
  Planner planner(s.c);
  EXPECT_LE(planner.planned_bytes(*more.recipe), s.c.limit);
  // A batch too large gets the largest fitting one, whatever it is.
  s.c.given.batch = s.c.recipe.batch = 64;
  int64_t bytes = Planner(s.c).planned_bytes();
  s.c.limit = bytes * 3 / 4;
  Finding fits = advice(s, "micro-batch");
  EXPECT_TRUE(fits.for_memory);
  Planner again(s.c);
  EXPECT_LE(again.planned_bytes(*fits.recipe), s.c.limit);
  Recipe larger = *fits.recipe;
  ++larger.batch;
  EXPECT_GT(again.planned_bytes(larger), s.c.limit);
  expect_not_applicable(Subject("cpu", {{"batch", {"1"}}}), "micro-batch");  // its gain cannot be predicted
}

// Offers fit as crest train runs them, with validation.
TEST(Rules, WhatFitsIsWhatTrainPlans) {
  Subject s("h100", {{"seq", {"64"}}, {"batch", {"64"}}});
  auto planned = [&](const Recipe& given, const SessionUse& use) {
    return compile(given, s.c.device, session_programs(given, use)).planned_bytes();
  };
  Planner planner(s.c);
  EXPECT_EQ(planner.planned_bytes(), planned(s.c.recipe, training_use));
  s.c.limit = planner.planned_bytes() - 1;
  EXPECT_FALSE(planner.fits(s.c.given));
  int64_t largest = planner.largest_batch(s.c.given);
  EXPECT_LT(largest, 64);
  EXPECT_EQ(largest, largest_batch(s.c.recipe, s.c.device, training_use, s.c.limit));
}

// A change of time alone is no advice if it no longer fits.
TEST(Advise, KeepsWhatFits) {
  Subject s("h100", {{"vocab", {"500"}}, {"pad-vocab", {"1"}}, {"seq", {"64"}}, {"batch", {"8"}}});
  s.c.limit = Planner(s.c).planned_bytes();
  AdviceReport report = advise(s.c, {}, [](auto&) {});
  ASSERT_FALSE(Planner(s.c).fits(*advice(s, "vocabulary").recipe)) << "padding takes no memory";
  for (auto& r : report.rules)
    for (auto& a : r.advice) EXPECT_TRUE(!a.planned_bytes || *a.planned_bytes <= s.c.limit) << r.rule->id;
}

// State moved to the host and back takes as long in a ratio as in crest plan.
TEST(Advise, CountsTransfersAsPlanDoes) {
  Subject s("h200", {{"model", {"gpt2-124M"}}, {"precision", {"bf16"}}, {"offload", {"optimizer"}}, {"batch", {"1"}}});
  std::optional<Calibration> calibration = find_calibration("", s.c.device);
  ASSERT_TRUE(calibration);
  s.c.calibration = &*calibration;
  Recipe larger = s.c.given;
  larger.batch = 4;
  auto ms = [&](const Recipe& given) {
    Recipe r = resolve(given, s.c.device);
    CompiledSession session = compile(r, s.c.device, session_programs(r, training_use), {.verify = false});
    StepTime t = step_time(session, s.c.calibration, s.c.sheet);
    EXPECT_TRUE(t.time);
    return t.time ? t.time->ms : 0;
  };
  PredictedRatio ratio = Planner(s.c).ratio(s.c.given, larger, GainNeeds::rates);
  EXPECT_EQ(ratio.basis, "calibration");
  EXPECT_NEAR(*ratio.ratio, ms(larger) / 4 / ms(s.c.given), 1e-6);
}

TEST(Rules, AccumulationKeepsTheGlobalBatch) {
  Finding f =
      advice(Subject("h100", {{"batch", {"2"}}, {"grad-accumulation", {"6"}}, {"seq", {"32"}}}), "accumulation");
  EXPECT_EQ(f.recipe->batch, 12);
  EXPECT_EQ(f.recipe->grad_accumulation, 1);
  expect_not_applicable(Subject("h100", {}), "accumulation");
}

TEST(Rules, Methods) {
  GivenSettings slow = {{"precision", {"fp32"}},
                        {"attention", {"naive"}},
                        {"fusion", {"off"}},
                        {"optimizer", {"adamw-unfused"}},
                        {"recompute", {"full"}}};
  Subject s("h100", slow);
  EXPECT_EQ(advice(s, "mixed-precision").recipe->precision, "bf16");
  EXPECT_EQ(advice(s, "flash-attention").recipe->attention, "flash");
  EXPECT_EQ(advice(s, "fusion").recipe->fusion, "on");
  EXPECT_EQ(advice(s, "fused-optimizer").recipe->optimizer, "adamw");
  EXPECT_EQ(advice(s, "recompute").recipe->recompute, "none");
  EXPECT_EQ(advice(Subject("v100", {{"precision", {"fp32"}}}), "mixed-precision").recipe->precision, "fp16");
  Subject fast("h100", {{"recompute", {"none"}}});
  for (const char* id : {"mixed-precision", "flash-attention", "fusion", "fused-optimizer", "recompute"})
    expect_holds(fast, id);
}

TEST(Rules, MemoryThatIsShort) {
  Subject s("h100", {{"batch", {"64"}}, {"recompute", {"none"}}});
  expect_not_applicable(s, "optimizer-memory");
  int64_t bytes = Planner(s.c).planned_bytes();
  s.c.limit = bytes - 1;
  Finding repeat = advice(s, "recompute");
  EXPECT_TRUE(repeat.for_memory);
  EXPECT_LT(Planner(s.c).planned_bytes(*repeat.recipe), bytes);
  for (auto& f : s.check("optimizer-memory").findings) EXPECT_LT(Planner(s.c).planned_bytes(*f.recipe), bytes);
  EXPECT_FALSE(s.check("optimizer-memory").findings.empty());
}

TEST(Rules, WaitingForDataIsThatOfARun) {
  Subject s("h100", {});
  expect_not_applicable(s, "data-loading");
  s.c.waits = RunWaits{100, 1000, 5};
  expect_holds(s, "data-loading");
  s.c.waits = RunWaits{100, 1000, 250};
  EXPECT_DOUBLE_EQ(*advice(s, "data-loading").time_ratio, 0.75);
}

TEST(Rules, Ranks) {
  for (const char* id :
       {"width-over-ranks", "heads-over-ranks", "tensor-ranks", "pipeline-bubble", "sharded-optimizer"})
    expect_not_applicable(Subject("h100", {}), id);
  // One rank suits memory, heads and width: one piece of advice, named by the other rules.
  for (const char* mesh : {"tensor=3", "tensor=4"}) {
    Subject ranks("h100", {}, mesh);
    EXPECT_TRUE(contains(advice(ranks, "tensor-ranks").change, "tensor=1"));
    expect_holds(ranks, "width-over-ranks");
    expect_holds(ranks, "heads-over-ranks");
    EXPECT_TRUE(contains(ranks.check("width-over-ranks").text, "tensor=1 of tensor-ranks")) << mesh;
  }
  // Where memory needs so many ranks, heads and width have to change.
  Subject three("h100", {}, "tensor=3"), four("h100", {}, "tensor=4");
  three.c.limit = Planner(three.c).planned_bytes() * 4 / 10, four.c.limit = Planner(four.c).planned_bytes() * 3 / 10;
  EXPECT_EQ(advice(three, "heads-over-ranks").change, "--mesh tensor=4") << "two ranks have too little memory";
  expect_holds(Subject("h100", {}, "tensor=4"), "heads-over-ranks");
  expect_holds(Subject("h100", {}, "tensor=2"), "width-over-ranks");  // 128 / 2 = 64
  Finding width = advice(four, "width-over-ranks");
  EXPECT_TRUE(contains(width.condition, "h/t = 32")) << width.condition;
  EXPECT_EQ(width.change, "a width of 256");
  expect_holds(four, "tensor-ranks");
  Subject full("h100", {}, "tensor=2");
  full.c.limit = Planner(full.c).planned_bytes() * 6 / 10;
  expect_holds(full, "tensor-ranks");
  Finding bubble = advice(Subject("h100", {{"grad-accumulation", {"2"}}}, "pipeline=3"), "pipeline-bubble");
  EXPECT_TRUE(contains(bubble.condition, "50%"));
  EXPECT_TRUE(contains(bubble.change, "--grad-accumulation 18"));
  EXPECT_DOUBLE_EQ(*bubble.time_ratio, 0.5 / 0.9);
  expect_holds(Subject("h100", {{"grad-accumulation", {"18"}}}, "pipeline=3"), "pipeline-bubble");
  Subject sharded("cpu", {{"data-parallel", {"2"}}, {"reduce", {"flat"}}});
  expect_holds(sharded, "sharded-optimizer");
  sharded.c.limit = Planner(sharded.c).planned_bytes() - 1;
  EXPECT_TRUE(advice(sharded, "sharded-optimizer").for_memory);
  // An insufficient level is followed by the next.
  Subject level("cpu", {{"data-parallel", {"2"}}, {"shard", {"optimizer"}}});
  expect_holds(level, "sharded-optimizer");
  level.c.limit = Planner(level.c).planned_bytes() - 1;
  std::string change = advice(level, "sharded-optimizer").change;
  EXPECT_TRUE(change.starts_with("--shard gradients") || change.starts_with("--shard weights")) << change;
  Subject last("cpu", {{"data-parallel", {"2"}}, {"shard", {"weights"}}});
  last.c.limit = 1;
  expect_holds(last, "sharded-optimizer");
}

// A predicted gain below 1% is no advice.
TEST(Advise, DropsWhatIsNotWorthIt) {
  Subject s("h100", {{"recompute", {"activation"}}, {"seq", {"64"}}});
  AdviceReport report = advise(s.c, {}, [](auto&) {});
  EXPECT_EQ(report.rules.size(), rules().size());
  for (auto& r : report.rules)
    for (auto& a : r.advice) {
      EXPECT_FALSE(a.finding.condition.empty());
      EXPECT_TRUE(a.predicted.ratio || !a.predicted.why_not.empty()) << r.rule->id;
      EXPECT_TRUE(!a.predicted.ratio || a.finding.for_memory || *a.predicted.ratio < 0.99) << r.rule->id;
      EXPECT_TRUE(!a.finding.recipe || *a.planned_bytes > 0);
    }
  EXPECT_EQ(
      report.count(RuleStatus::advice) + report.count(RuleStatus::holds) + report.count(RuleStatus::not_applicable),
      rules().size());
}

}  // namespace crest::test
