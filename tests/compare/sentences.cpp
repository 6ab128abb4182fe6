// Words of a comparison: about a step, groups, bars.
#include "compare/sentences.h"

#include <gtest/gtest.h>

#include <cstdio>

#include "compare/compared.h"

using namespace crest;
using namespace crest::test;

// As many instructions, but others.
TEST(Compare, TheHeadlineNamesOtherInstructions) {
  Synthetic a = gpt2(), b = gpt2();
  a.recipe.ranks = b.recipe.ranks = 2;
  a.recipe.pass_settings = {{"shard", "none"}, {"reduce", "flat"}};
  b.recipe.pass_settings = {{"shard", "optimizer"}, {"reduce", "bucket"}, {"bucket", "10GB"}, {"gather", "forward"}};
  a.slowdown = [](auto& r) { return r.op == "all_reduce" ? 50.0 : 2.0; };
  RunComparison c = compared(a, b);
  EXPECT_TRUE(contains(headline(c), "runs as other instructions (3 x all_reduce -> ")) << headline(c);
}

// Which instruction of a group is the slowest is chance.
TEST(Compare, ChangesAreThoseOfAnOperation) {
  auto slow = [](const std::string& op) {
    Synthetic s = gpt2();
    s.slowdown = [op](const ProfileInstr& r) { return r.op == op ? 6.0 : 2.0; };
    return s;
  };
  Synthetic a = slow("linear_dw"), b = slow("linear_dx");
  RunComparison c = compared(a, b);
  int others = 0;
  for (auto& x : c.causes) {
    EXPECT_EQ(change_text(c, x), "the same instructions") << x.label << ", " << x.phase;
    others += x.a.kernels != x.b.kernels;
  }
  EXPECT_GT(others, 0) << "another kernel takes most time";
  EXPECT_EQ(c.row_noise, compared(b, a).row_noise);
  b.recipe.batch = 32;
  RunComparison larger = compared(a, b), smaller = compared(b, a);
  const Cause *one = cause(larger, "attn.qkv", "backward"), *other = cause(smaller, "attn.qkv", "backward");
  ASSERT_TRUE(one && other);
  EXPECT_EQ(change_text(larger, *one), "linear_dx bf16[16,1024,768] -> bf16[32,1024,768]");
  EXPECT_EQ(change_text(smaller, *other), "linear_dx bf16[32,1024,768] -> bf16[16,1024,768]");
}

// Words about an efficiency have the sign of its bar, also if the floors of the rows (a link's) say
// otherwise, and if the step has another mix of groups.
TEST(Compare, EfficiencyIsThatOfItsBar) {
  for (bool tokens : {false, true}) {
    Profile x = make_profile(gpt2()), y = x;
    double more = 0;
    for (ProfileInstr& r : y.instrs) {
      if (r.op_class != "contraction") continue;
      more += 0.5 * r.ms, r.ms *= 1.5;
      r.floor_ms *= 4;
    }
    for (auto* list : {&y.step_ms, &y.profiled_ms})
      for (double& ms : *list) ms += more;
    CompareOptions options;
    options.per_token = tokens;
    RunComparison c = compare_runs(record_of(x), record_of(y), options);
    EXPECT_GT(part(c, Factor::efficiency), 0);
    for (auto& w : c.waterfall) {
      if (w.factor != Factor::efficiency) continue;
      double from = 0, to = 0;
      ASSERT_EQ(std::sscanf(w.detail.c_str(), "%lf%% -> %lf%% of the limit", &from, &to), 2) << w.detail;
      EXPECT_LT(to, from);
    }
    const Cause* mlp = cause(c, "mlp.proj", "forward");
    ASSERT_TRUE(mlp);
    EXPECT_TRUE(contains(factor_text(c, *mlp), "kernel efficiency 50% -> 3")) << factor_text(c, *mlp);
  }
}

TEST(Compare, ATableOfTokensHasTimesOfTokens) {
  Synthetic a = gpt2(), b = gpt2();
  b.recipe.batch = 32, b.residual_ms = 1, a.residual_ms = 2;
  RunComparison c = compared(a, b);
  ASSERT_TRUE(c.per_token);
  int found = 0;
  for (auto& w : c.waterfall) {
    double from = 0, to = 0;
    if (w.factor != Factor::residual && w.factor != Factor::idle) continue;
    ++found;
    ASSERT_EQ(std::sscanf(w.detail.c_str(), "%lf -> %lf ms per 1000 tokens", &from, &to), 2) << w.detail;
    EXPECT_NEAR(to - from, 1e3 * w.ms_per_token, 0.0011);
  }
  EXPECT_EQ(found, 2);
}

// A smaller model on a slow device: the size of the model does not explain its time.
TEST(Compare, TimeOfAnotherDeviceIsNotTheModels) {
  Synthetic a = gpt2(), b = gpt2();
  b.recipe = recipe_of("nano", 16, 256);
  b.rate_factor = 1e-4;
  b.slowdown = [](const ProfileInstr&) { return 30.0; };
  RunRecord x = make_record(a), y = make_record(b);
  y.device["name"] = "a slow CPU", y.device["kind"] = "cpu";
  for (bool swapped : {false, true}) {
    RunComparison c = swapped ? compare_runs(y, x) : compare_runs(x, y);
    expect_exact(c);
    for (auto& l : c.settings) {
      if (l.setting == "device" || l.setting.empty()) continue;
      EXPECT_LT(l.share, 0.01) << l.sentence;
    }
    EXPECT_FALSE(contains(c.sentences[0], "instead of")) << c.sentences[0];
    EXPECT_FALSE(contains(c.sentences[0], "(model")) << c.sentences[0];
  }
}
