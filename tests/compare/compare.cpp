// Comparisons of whole runs: the differences, their sizes, and their causes.
#include "compare/compare.h"

#include <gtest/gtest.h>

#include <rapidcheck/gtest.h>
#include <set>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "compare/compare_text.h"
#include "compare/compared.h"
#include "compare/sentences.h"
#include "compare/synthetic.h"
#include "core/error.h"
#include "core/random.h"
#include "core/text.h"
#include "plan/automatic.h"

using namespace crest;
using namespace crest::test;

TEST(Compare, ARunIsNotFasterThanItself) {
  RunRecord r = make_record(gpt2());
  RunComparison c = compare_runs(r, r);
  expect_exact(c);
  EXPECT_EQ(c.step_difference(), 0);
  EXPECT_EQ(c.noise.verdict, Verdict::cannot_tell);
  EXPECT_TRUE(c.differences.empty());
  EXPECT_TRUE(c.waterfall.empty());
  EXPECT_TRUE(std::none_of(c.causes.begin(), c.causes.end(), [](auto& x) { return x.significant; }));
  ASSERT_FALSE(c.sentences.empty());
  EXPECT_TRUE(contains(c.sentences[0], "No difference in speed beyond noise")) << c.sentences[0];
  EXPECT_FALSE(contains(c.sentences[0], "because")) << c.sentences[0];
}

TEST(Compare, FlashInsteadOfNaive) {
  Synthetic a = gpt2(), b = gpt2();
  a.recipe.attention = "naive";
  RunComparison c = compared(a, b);
  EXPECT_EQ(c.noise.verdict, Verdict::b_faster);
  EXPECT_EQ(c.join, "scopes");
  ASSERT_EQ(c.differences.size(), 1u);
  EXPECT_EQ(c.differences[0].key, "attention");
  for (const char* phase : {"backward", "forward"}) {
    const Cause* x = cause(c, "attn", phase);
    ASSERT_TRUE(x) << phase;
    EXPECT_TRUE(x->significant);
    EXPECT_LT(x->ms, 0);
    EXPECT_EQ(x->main_factor, Factor::bytes) << "T x T matrices are written and read again";
    EXPECT_EQ(x->settings, std::vector<std::string>{"attention"});
    EXPECT_TRUE(x->a.quadratic);
    EXPECT_FALSE(x->b.quadratic);
  }
  EXPECT_GT(cause(c, "attn", "backward")->share + cause(c, "attn", "forward")->share, 0.9);
  EXPECT_TRUE(contains(c.sentences[0], "because attention")) << c.sentences[0];
  EXPECT_TRUE(contains(c.sentences[0], "T x T")) << c.sentences[0];
  ASSERT_FALSE(c.memory_causes.empty());
  EXPECT_TRUE(c.memory_causes[0].quadratic);
  // 12 layers x 16 x 12 heads x 1024 x 1024 in half precision.
  EXPECT_EQ(c.memory_causes[0].a - c.memory_causes[0].b, int64_t(12) * 16 * 12 * 1024 * 1024 * 2);
}

TEST(Compare, FusedInsteadOfUnfused) {
  Synthetic a = gpt2(), b = gpt2();
  a.recipe.fusion = "off";
  RunComparison c = compared(a, b);
  const Cause* gelu = cause(c, "mlp.act", "forward");
  ASSERT_TRUE(gelu);
  EXPECT_EQ(gelu->main_factor, Factor::bytes);
  EXPECT_EQ(gelu->b.instructions, 12);
  EXPECT_GT(gelu->a.instructions, 12 * 8);
  EXPECT_LT(part(c, Factor::idle), 0) << "fewer launches";
  EXPECT_NEAR(part(c, Factor::flops), 0, 0.02 * std::abs(c.step_difference()));
}

TEST(Compare, HalfPrecisionIsRateFirstAndBytesSecond) {
  Synthetic a = gpt2(), b = gpt2();
  a.recipe.precision = "fp32";
  RunComparison c = compared(a, b);
  EXPECT_LT(part(c, Factor::rate), 0.8 * c.step_difference());
  EXPECT_LT(part(c, Factor::bytes), 0);
  EXPECT_NEAR(part(c, Factor::flops), 0, 0.01 * std::abs(c.step_difference()));
  EXPECT_TRUE(contains(c.sentences[0], "arithmetic is faster")) << c.sentences[0];
  EXPECT_TRUE(contains(c.sentences[0], "fp32")) << c.sentences[0];
}

TEST(Compare, SeveralSettingsEachTakeTheirPart) {
  Synthetic a = gpt2(), b = gpt2();
  a.recipe.precision = "fp32", a.recipe.attention = "naive", a.recipe.fusion = "off";
  RunComparison c = compared(a, b);
  ASSERT_GE(c.settings.size(), 3u);
  EXPECT_EQ(c.settings[0].setting, "precision");
  double named = 0;
  for (auto& l : c.settings) named += l.setting.empty() ? 0 : l.share;
  EXPECT_GT(named, 0.98);
  const Cause* gelu = cause(c, "mlp.act", "backward");
  ASSERT_TRUE(gelu);
  EXPECT_EQ(gelu->settings, (std::vector<std::string>{"precision", "fusion"})) << "its products are faster, too";
}

// Ranks with another way of summing gradients differ in communication only.
TEST(Compare, AnotherReductionIsCommunication) {
  for (auto& [key, value] : {std::pair("reduce", "each"), {"comm-dtype", "bf16"}}) {
    SCOPED_TRACE(key);
    Synthetic a, b;
    a.recipe = recipe_of("nano", 2, 64);
    a.recipe.precision = "fp32", a.recipe.data_parallel = 2;
    a.device = "cpu", a.idle_ms = 0, b = a;
    a.recipe.pass_settings[key] = value;
    a.slowdown = [](const ProfileInstr& r) { return r.op_class == "communication" ? 40.0 : 2.0; };
    RunComparison c = compared(a, b);
    EXPECT_LT(part(c, Factor::communication), 0.9 * c.step_difference());
    ASSERT_FALSE(c.settings.empty());
    EXPECT_EQ(c.settings[0].setting, key == std::string("reduce") ? "reduce" : "comm_dtype");
    EXPECT_GT(c.settings[0].share, 0.9);
  }
}

TEST(Compare, ABetterKernelIsEfficiency) {
  Synthetic a = gpt2(), b = gpt2();
  a.recipe.pad_vocab = 1;
  a.slowdown = [](const ProfileInstr& r) { return r.scopes == std::vector<std::string>{"lm_head"} ? 8.0 : 2.0; };
  RunComparison c = compared(a, b);
  EXPECT_NEAR(part(c, Factor::efficiency) / c.step_difference(), 1, 0.02);
  EXPECT_TRUE(contains(c.sentences[0], "output head")) << c.sentences[0];
  EXPECT_TRUE(contains(c.sentences[0], "pad_vocab")) << c.sentences[0];
}

TEST(Compare, LargerBatchesAreComparedByToken) {
  Synthetic a = gpt2(), b = gpt2();
  b.recipe.batch = 32;
  RunComparison c = compared(a, b);
  EXPECT_TRUE(c.per_token);
  EXPECT_GT(c.step_difference(), 0);
  EXPECT_LT(c.explained_difference(), 0);
  EXPECT_EQ(c.noise.verdict, Verdict::b_faster) << "the update is shared by more tokens";
  EXPECT_EQ(c.causes[0].roles, std::vector<std::string>{"update"});
  EXPECT_TRUE(contains(c.sentences[0], "per token")) << c.sentences[0];
}

TEST(Compare, ModelsOfOtherShapes) {
  Synthetic a = gpt2(), b = gpt2();
  b.recipe.model = load_model_config("gpt2-1558M");
  RunComparison c = compared(a, b);
  EXPECT_EQ(c.join, "scopes");
  const Cause* up = cause(c, "mlp.fc", "forward");
  ASSERT_TRUE(up);
  EXPECT_EQ(up->a.layers, 12);
  EXPECT_EQ(up->b.layers, 48);
  EXPECT_EQ(up->main_factor, Factor::flops);
  EXPECT_TRUE(contains(up->sentence, "12 -> 48 layers")) << up->sentence;
  EXPECT_TRUE(contains(c.sentences[0], "more arithmetic")) << c.sentences[0];
  for (auto& x : c.causes) EXPECT_TRUE(x.a.instructions && x.b.instructions) << x.label << " has no counterpart";
}

// A learning rate or a seed changes numbers, not time. Crest lists it as a difference and never as
// a cause, in both directions.
TEST(Compare, WhatTakesNoTimeExplainsNone) {
  Synthetic a = gpt2(), b = gpt2();
  b.slowdown = [](const ProfileInstr&) { return 2.4; };
  RunRecord x = make_record(a), y = make_record(b);
  x.recipe["lr"] = 0.001, y.recipe["lr"] = 0.002;
  for (auto& c : {compare_runs(x, y), compare_runs(y, x)}) {
    std::set<std::string> keys;
    for (auto& d : c.differences)
      if (d.section == "recipe") keys.insert(d.key);
    EXPECT_EQ(keys, (std::set<std::string>{"lr"}));
    EXPECT_NE(c.noise.verdict, Verdict::cannot_tell);
    for (auto& l : c.settings) EXPECT_EQ(l.setting, "");
    EXPECT_FALSE(contains(c.sentences[0], "lr ")) << c.sentences[0];
  }
  // If a setting with an effect on time differs too, it is the cause.
  x.recipe["fusion"] = "off";
  RunComparison c = compare_runs(x, y);
  EXPECT_EQ(c.settings[0].setting, "fusion");
}

TEST(Compare, AnotherDeviceIsRateAndBandwidth) {
  Synthetic a = gpt2(), b = gpt2();
  b.rate_factor = 2;
  RunRecord x = make_record(a), y = make_record(b);
  y.device["name"] = "another device";
  RunComparison c = compare_runs(x, y);
  expect_exact(c);
  EXPECT_NEAR((part(c, Factor::rate) + part(c, Factor::bandwidth)) / c.step_difference(), 1, 0.02);
  EXPECT_EQ(c.settings[0].setting, "device");
  // If only the threads differ, the numbers come with their unit.
  RunRecord two = x, one = y;
  one.device["name"] = two.device["name"], two.device["threads"] = 2, one.device["threads"] = 1;
  RunComparison threads = compare_runs(two, one);
  EXPECT_EQ(threads.settings[0].a, "2 threads");
  EXPECT_EQ(threads.settings[0].b, "1 thread");
  // Two measurements of one device's limits differ only by noise, so the difference explains
  // nothing.
  y.device["name"] = x.device["name"];
  RunComparison same = compare_runs(x, y);
  expect_exact(same);
  EXPECT_EQ(part(same, Factor::rate), 0);
  EXPECT_EQ(part(same, Factor::bandwidth), 0);
}

TEST(Compare, ARateOfSeveralPrecisionsIsTheirMean) {
  Profile x = make_profile(gpt2());
  std::erase_if(x.rates, [](auto& r) { return r.name == "fp32"; });
  x.rates.push_back({"fp32", x.rate("bf16") / 4, "given"});
  Profile y = x;
  double more = 0;
  int contractions = 0;
  for (ProfileInstr& r : y.instrs)
    if (r.op_class == "contraction" && ++contractions % 2) more += 3 * r.ms, r.ms *= 4, r.arithmetic = "fp32";
  for (auto* list : {&y.step_ms, &y.profiled_ms})
    for (double& ms : *list) ms += more;
  RunComparison c = compare_runs(record_of(x), record_of(y));
  auto bar = std::find_if(c.waterfall.begin(), c.waterfall.end(), [](auto& b) { return b.factor == Factor::rate; });
  ASSERT_NE(bar, c.waterfall.end());
  size_t arrow = bar->detail.find(" -> ");
  std::string a = bar->detail.substr(0, arrow), b = bar->detail.substr(arrow + 4);
  EXPECT_TRUE(a.starts_with("bf16 ")) << bar->detail;
  EXPECT_TRUE(contains(b, "bf16") && contains(b, " and ") && contains(b, "fp32")) << bar->detail;
  EXPECT_NE(a.substr(5), b.substr(b.find(' ', b.find(" and ") + 5) + 1)) << "the rates differ: " << bar->detail;
}

TEST(Compare, ALowerClockIsNamed) {
  Synthetic a = gpt2(), b = gpt2();
  b.clock_mhz = 990;
  b.slowdown = [](const ProfileInstr& r) { return r.op_class == "contraction" ? 4.0 : 2.0; };
  RunComparison c = compared(a, b);
  EXPECT_GT(part(c, Factor::clocks) / c.step_difference(), 0.9);
  ASSERT_FALSE(c.differences.empty());
  EXPECT_EQ(c.differences[0].section, "conditions");
}

TEST(Compare, NoiseIsCalledNoise) {
  Synthetic a = gpt2(), b = gpt2();
  a.noise = b.noise = 0.2;
  b.slowdown = [](const ProfileInstr&) { return 2.02; };
  EXPECT_EQ(compared(a, b).noise.verdict, Verdict::cannot_tell) << "within the samples' scatter";
  a.noise = b.noise = 0.001;
  CompareOptions options;
  options.noise_floor = 0.05;
  RunComparison floor = compared(a, b, options);
  EXPECT_EQ(floor.noise.verdict, Verdict::cannot_tell) << "below the measured floor";
  EXPECT_FALSE(contains(floor.sentences[0], "because")) << floor.sentences[0];
  options.noise_floor = 0.001;
  EXPECT_EQ(compared(a, b, options).noise.verdict, Verdict::a_faster);
}

TEST(Compare, FewSamplesClaimLargeDifferencesOnly) {
  Synthetic a = gpt2(), b = gpt2();
  a.samples = 1;
  b.slowdown = [](const ProfileInstr&) { return 2.1; };
  RunComparison c = compared(a, b);
  EXPECT_FALSE(c.noise.tested);
  EXPECT_EQ(c.noise.verdict, Verdict::cannot_tell);
  b.slowdown = [](const ProfileInstr&) { return 2.4; };
  EXPECT_EQ(compared(a, b).noise.verdict, Verdict::a_faster);
}

TEST(Compare, WhatTheProfileDoesNotSeeIsAWarning) {
  Synthetic a = gpt2(), b = gpt2();
  b.residual_ms = 10;
  RunComparison c = compared(a, b);
  EXPECT_NEAR(part(c, Factor::residual), 10, 0.1);
  EXPECT_GT(c.residual_share, 0.05);
  bool warned = false;
  for (auto& n : c.notes) warned |= contains(n, "Warning");
  EXPECT_TRUE(warned);
}

TEST(Compare, WhatFollowsFromAnotherSettingIsNoChange) {
  auto keys = [](const Synthetic& a, const Synthetic& b) {
    std::vector<std::string> list;
    for (auto& d : compared(a, b).differences)
      if (d.section == "recipe") list.push_back(d.key);
    return list;
  };
  Synthetic a = gpt2(), b = gpt2();
  a.device = b.device = "cpu";
  a.recipe.recompute = b.recipe.recompute = "auto";
  b.recipe.precision = "fp32", b.recipe.fusion = "off";
  EXPECT_EQ(keys(a, b), (std::vector<std::string>{"precision", "fusion"}));
  b.recipe.recompute = "full";
  EXPECT_EQ(keys(a, b), (std::vector<std::string>{"precision", "recompute", "fusion"}));
}

// Records from before the default of --tensor-overlap lack the key.
TEST(Compare, ADefaultThatIsNewerThanARecordIsNoChange) {
  const Json gpu = {{"kind", "cuda"}};
  Json older = {{"ranks", 2}, {"mesh", "tensor=2"}}, newer = older;
  auto passed_over = [&](const Json& recipe) {
    const std::vector<std::string> keys = automatic_settings(recipe, gpu);
    return std::find(keys.begin(), keys.end(), "tensor_overlap") != keys.end();
  };
  newer["tensor_overlap"] = "rows";
  EXPECT_TRUE(passed_over(older) && passed_over(newer));
  newer["tensor_overlap"] = "off";
  EXPECT_FALSE(passed_over(newer)) << "chosen by the user";
  newer["mesh"] = "tensor=4", newer["ranks"] = 4;
  EXPECT_TRUE(passed_over(newer));
  newer["tensor_overlap"] = "rows";
  EXPECT_FALSE(passed_over(newer));
  newer["mesh"] = "no mesh";
  EXPECT_FALSE(passed_over(newer));
}

TEST(Compare, SwappedSidesHaveTheOtherSign) {
  Synthetic a = gpt2(), b = gpt2();
  a.recipe.precision = "fp32", a.recipe.fusion = "off", b.recipe.recompute = "full", b.recipe.batch = 8;
  b.clock_mhz = 1740;
  RunRecord x = make_record(a, "first"), y = make_record(b, "second");
  CompareOptions interleaved;  // else another clock leaves it open
  interleaved.paired = true;
  RunComparison forth = compare_runs(x, y, interleaved), back = compare_runs(y, x, interleaved);
  ASSERT_EQ(forth.waterfall.size(), back.waterfall.size());
  for (size_t i = 0; i < forth.waterfall.size(); ++i) {
    EXPECT_EQ(forth.waterfall[i].factor, back.waterfall[i].factor);
    EXPECT_NEAR(forth.waterfall[i].ms, -back.waterfall[i].ms, 1e-9 * forth.a.step_ms);
  }
  EXPECT_EQ(forth.causes.size(), back.causes.size());
  EXPECT_EQ(forth.planned_difference(), -back.planned_difference());
  EXPECT_EQ(forth.noise.verdict, Verdict::b_faster);
  EXPECT_EQ(back.noise.verdict, Verdict::a_faster);
}

// Profiles beyond any Program: any operations, scopes, phases, times and overlaps.
static Profile random_profile(uint64_t seed) {
  auto pick = [&, n = uint64_t(0)](uint64_t below) mutable { return random_bits(seed, 1, n++) % below; };
  const char* scopes[] = {"h.0.attn", "h.1.attn.softmax", "h.0.mlp.fc", "h.2.mlp.up", "wte", "loss", "odd"};
  const char* phases[] = {"forward", "recompute", "backward", "update", ""};
  const char* classes[] = {"contraction", "attention", "elementwise", "communication"};
  Profile p;
  p.recipe = {{"seq", 64}, {"model", "random"}};
  p.device = {{"kind", "cpu"}, {"name", "x"}, {"threads", 2}};
  p.calls = {"train"};
  p.tokens = int64_t(pick(3)) * 64;
  p.rates = {{"fp32", 1e12, ""}, {"bf16", 8e12, ""}};
  if (pick(4)) p.rates.push_back({"bandwidth", 1e11, ""});
  size_t rows = pick(30) + 1;
  for (size_t i = 0; i < rows; ++i) {
    ProfileInstr r;
    r.program = "train", r.index = int(i), r.op = classes[pick(4)], r.op_class = r.op, r.phase = phases[pick(5)];
    for (size_t k = pick(3); k-- > 0;) r.scopes.push_back(scopes[pick(7)]);
    r.arithmetic = pick(2) ? "fp32" : "bf16";
    r.flops = double(pick(1000)) * 1e6, r.bytes = double(pick(1000)) * 1e4, r.ms = double(pick(1000)) / 100;
    r.layer = int(pick(4)) - 1;
    p.instrs.push_back(r);
    p.busy_ms += r.ms * 0.9;
    p.intervals.push_back({.instr = int(i), .start_ms = 0, .ms = r.ms});
  }
  p.idle_ms = double(pick(100)) / 10;
  p.span_ms = p.busy_ms + p.idle_ms;
  for (int i = 0; i < 5; ++i) p.step_ms.push_back(0.1 + p.span_ms * (0.9 + 0.01 * double(pick(20))));
  p.throttled.assign(p.step_ms.size(), 0);
  return p;
}

RC_GTEST_PROP(Compare, AnyTwoProfilesSumExactly, (uint32_t seed_a, uint32_t seed_b)) {
  RunRecord a = record_of(random_profile(seed_a)), b = record_of(random_profile(seed_b));
  for (GroupBy by : {GroupBy::scope, GroupBy::op_class, GroupBy::layer}) {
    CompareOptions options;
    options.by = by;
    RunComparison c = compare_runs(a, b, options);
    double size = std::max(c.a.step_ms, c.b.step_ms), bars = 0, rows = 0;
    for (auto& w : c.waterfall) bars += w.ms;
    for (auto& x : c.causes) {
      rows += x.ms;
      double sum = std::accumulate(x.factors.begin(), x.factors.end(), 0.0);
      RC_ASSERT(std::abs(sum - x.ms) <= 1e-9 * size);
    }
    RC_ASSERT(std::abs(bars - c.step_difference()) <= 1e-9 * size);
    double around = part(c, Factor::idle) + part(c, Factor::overlap) + part(c, Factor::residual);
    RC_ASSERT(std::abs(rows + around - c.step_difference()) <= 1e-9 * size);
    RC_ASSERT(!compare_text(c, {.width = 60 + int(seed_a % 80)}).empty());  // whatever the bars do, negative sums too
  }
}

// The comparison of A with B, for B with A: sides exchanged, signs turned.
static RunComparison turned(RunComparison c, const RunComparison& back) {
  std::swap(c.a, c.b), std::swap(c.a.title, c.b.title);  // the first one is always A
  for (auto& d : c.differences) std::swap(d.a, d.b);
  c.noise.verdict = mirrored(c.noise.verdict);
  c.noise.ratio = 1 / c.noise.ratio;
  for (auto& w : c.waterfall) {
    w.ms = -w.ms, w.ms_per_token = -w.ms_per_token;
    for (auto& other : back.waterfall)
      if (other.factor == w.factor) w.detail = other.detail;
  }
  for (auto& x : c.causes) {
    std::swap(x.a, x.b), std::swap(x.slowdowns.a, x.slowdowns.b);
    x.ms = -x.ms, x.ms_per_token = -x.ms_per_token;
    for (auto* parts : {&x.factors, &x.factors_per_token})
      for (double& part : *parts) part = -part;
  }
  for (auto& l : c.settings) std::swap(l.a, l.b), l.ms = -l.ms, l.ms_per_token = -l.ms_per_token;
  for (auto& m : c.memory_causes) {
    std::swap(m.a, m.b), std::swap(m.blocks_a, m.blocks_b), std::swap(m.type_a, m.type_b);
  }
  for (auto* rows : {&c.training.loss, &c.training.val_loss})
    for (auto& r : *rows) std::swap(r.a, r.b);
  c.sentences.clear();
  write_sentences(c);
  return c;
}

template <class T>
static std::vector<std::string> sentences_of(const std::vector<T>& list) {
  std::vector<std::string> out;
  for (auto& x : list) out.push_back(x.sentence);
  std::sort(out.begin(), out.end());
  return out;
}

static std::string mirror_problem(const RunRecord& a, const RunRecord& b, const CompareOptions& options = {}) {
  RunComparison forth = compare_runs(a, b, options), back = compare_runs(b, a, options), turn = turned(forth, back);
  if (turn.noise.verdict != back.noise.verdict) return "verdicts";
  if (turn.waterfall.size() != back.waterfall.size()) return "bars";
  if (sentences_of(turn.causes) != sentences_of(back.causes))
    return join(sentences_of(turn.causes), "\n") + "\n---\n" + join(sentences_of(back.causes), "\n");
  if (sentences_of(turn.settings) != sentences_of(back.settings))
    return join(sentences_of(turn.settings), "\n") + "\n---\n" + join(sentences_of(back.settings), "\n");
  if (sentences_of(turn.memory_causes) != sentences_of(back.memory_causes)) return "memory";
  if (turn.sentences != back.sentences) return join(turn.sentences, "\n") + "\n---\n" + join(back.sentences, "\n");
  auto significant = [](const RunComparison& c) {
    return std::count_if(c.causes.begin(), c.causes.end(), [](auto& x) { return x.significant; });
  };
  return significant(turn) == significant(back) ? "" : "significance";
}

RC_GTEST_PROP(Compare, BAgainstAMirrorsAAgainstBInAllItSays, (uint32_t seed_a, uint32_t seed_b, bool per_token)) {
  RunRecord a = record_of(random_profile(seed_a)), b = record_of(random_profile(seed_b));
  CompareOptions options;
  options.per_token = per_token;
  options.noise_floor = double(seed_a % 7) / 10 - 0.1;
  for (GroupBy by : {GroupBy::scope, GroupBy::op_class, GroupBy::layer}) {
    options.by = by;
    std::string problem = mirror_problem(a, b, options);
    if (!problem.empty()) RC_FAIL(problem);
  }
}

TEST(Compare, RealProgramsMirror) {
  Synthetic a = gpt2();
  std::vector<Synthetic> others(5, a);
  others[0].recipe.attention = "naive";
  others[1].recipe.fusion = "off";
  others[2].recipe.precision = "fp32";
  others[3].recipe.model = load_model_config("gpt2-355M");
  others[4].recipe.batch = 8, others[4].recipe.recompute = "full";
  for (auto& b : others) EXPECT_EQ(mirror_problem(make_record(a, "first"), make_record(b, "second")), "");
}

TEST(Compare, ANoiseFloorOfSixtyPercentIsAFactorEitherWay) {
  Synthetic slow = gpt2();
  slow.slowdown = [](const ProfileInstr&) { return 3.1; };  // 1.55 times the other's
  CompareOptions options;
  options.noise_floor = 0.6;
  RunRecord a = make_record(gpt2(), "fast"), b = make_record(slow, "slow");
  for (auto& c : {compare_runs(a, b, options), compare_runs(b, a, options)}) {
    EXPECT_EQ(c.noise.verdict, Verdict::cannot_tell);
    EXPECT_TRUE(contains(c.sentences[0], "No difference in speed beyond noise")) << c.sentences[0];
    EXPECT_FALSE(contains(c.sentences[0], "because")) << c.sentences[0];
  }
}

// Equal instructions with scattered times show how much a group may differ without a cause.
TEST(Compare, GroupsWithinTheScatterOfEqualOnesAreNoCauses) {
  auto shaken = [](double by, uint64_t seed) {
    Synthetic s = gpt2();
    s.slowdown = [=](const ProfileInstr& r) {
      uint64_t role = std::hash<std::string>{}(
          r.op + r.phase + r.type + (r.scopes.empty() ? "" : r.scopes[0].substr(r.scopes[0].rfind('.') + 1)));
      return 2.0 * std::exp(by * normal(seed, 1, role));
    };
    return s;
  };
  Synthetic a = shaken(0.15, 1), b = shaken(0.15, 2);
  b.slowdown = [slow = b.slowdown](const ProfileInstr& r) { return 1.1 * slow(r); };
  RunComparison c = compared(a, b);
  EXPECT_GT(c.row_noise, 0.1);
  EXPECT_TRUE(c.scattered);
  for (auto& x : c.causes) {
    if (!x.significant) continue;
    EXPECT_GT(std::abs(std::log(x.b.ms / x.a.ms)), std::log1p(c.row_noise) / 2) << x.label;
  }
  // The steps differ by less than equal groups do, so Crest claims no difference, unless a noise
  // floor was measured.
  EXPECT_EQ(c.noise.floor_source, "assumed");
  EXPECT_GT(c.row_noise, 0.3);
  EXPECT_TRUE(contains(c.sentences[0], "No difference in speed beyond noise")) << c.sentences[0];
  EXPECT_TRUE(contains(c.sentences[0], "equal groups differ by up to")) << c.sentences[0];
  EXPECT_TRUE(std::any_of(c.notes.begin(), c.notes.end(), [](auto& n) { return contains(n, "interleaved"); }));
  // The JSON says the same as the text.
  EXPECT_EQ(to_json(c)["noise"]["verdict"], "cannot_tell");
  EXPECT_FALSE(contains(compare_text(c), "Effect of each change"));
  CompareOptions measured;
  measured.noise_floor = 0.02;
  EXPECT_TRUE(contains(compared(a, b, measured).sentences[0], "slower"));
  // The same scatter, and attention beyond it.
  Synthetic slow = shaken(0.03, 2);
  slow.slowdown = [slower = slow.slowdown](const ProfileInstr& r) {
    return (r.op_class == "attention" ? 3 : 1) * slower(r);
  };
  c = compared(shaken(0.03, 1), slow);
  ASSERT_TRUE(cause(c, "attn", "backward"));
  EXPECT_TRUE(cause(c, "attn", "backward")->significant);
  EXPECT_TRUE(contains(c.sentences[0], "because of attention")) << c.sentences[0];
}

// Flash attention alone would save more than the difference, because the other kernels became
// slower.
TEST(Compare, AnEffectLargerThanTheDifferenceIsPartlyOffset) {
  Synthetic a = gpt2(), b = gpt2();
  a.recipe.attention = "naive";
  b.slowdown = [](const ProfileInstr& r) {
    return !r.scopes.empty() && r.scopes[0].find(".attn") != std::string::npos ? 2.0 : 2.1;
  };
  RunComparison c = compared(a, b);
  EXPECT_TRUE(contains(c.sentences[0], "; mainly because attention")) << c.sentences[0];
  EXPECT_TRUE(contains(c.sentences[0], ", which other effects partly offset")) << c.sentences[0];
}

// A percentage next to bars in the other direction would suggest that nothing else has an effect.
TEST(Compare, ABarThatOthersOffsetHasNoPercentage) {
  RunComparison c;
  c.a.title = "A", c.b.title = "B", c.a.profiled = c.b.profiled = true;
  c.a.step_ms = 200, c.b.step_ms = 100;
  c.noise.ratio = 0.5, c.noise.verdict = Verdict::b_faster;
  c.causes.emplace_back();
  c.waterfall = {{Factor::rate, -90, 0, "fp32 -> bf16"}, {Factor::bytes, -10, 0, ""}};
  EXPECT_TRUE(contains(headline(c), "; most of the time difference (90%) is because its arithmetic is faster"))
      << headline(c);
  c.waterfall[1].ms = -60;
  c.waterfall.push_back({Factor::efficiency, 50, 0, ""});
  EXPECT_TRUE(contains(headline(c),
                       "; mainly because its arithmetic is faster (fp32 -> bf16), which other effects "
                       "partly offset."))
      << headline(c);
}

// A has ten times the work of B, and B runs at a tenth of A's efficiency. Separate bars for both
// would be larger than the steps, and explain nothing.
TEST(Compare, NoBarIsLargerThanBothSteps) {
  Synthetic a = gpt2(), b = gpt2();
  b.recipe.batch = 1;
  a.slowdown = [](const ProfileInstr&) { return 1.2; };
  b.slowdown = [](const ProfileInstr&) { return 18.0; };
  RunComparison c = compared(a, b);
  for (auto& w : c.waterfall) EXPECT_LE(std::abs(w.ms), std::max(c.a.step_ms, c.b.step_ms)) << name(w.factor);
}
