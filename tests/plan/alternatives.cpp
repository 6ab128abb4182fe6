// Recipes with less memory than a given one.
#include "plan/alternatives.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "bench/phase_runner.h"
#include "device/find.h"

namespace crest::test {

namespace {

struct Planned {
  CompiledSession session;
  double flops_per_token;
  std::vector<Alternative> list;

  const Alternative* find(const std::string& flags) const {
    for (auto& a : list)
      if (a.flags == flags) return &a;
    return nullptr;
  }
};

Planned alternatives(void (*change)(Recipe&), BenchPhase phase = BenchPhase::step) {
  Recipe r;
  r.model = load_model_config("nano");
  r.model.layers = 2, r.model.vocab = 300;
  r.batch = 8, r.precision = "fp32";
  change(r);
  Device device = find_device("cpu", 1);
  auto compile = [&](const Recipe& recipe) { return compile_phase(recipe, device, phase, {.verify = false}); };
  auto flops = [&](const CompiledSession& s) {
    return phase_flops(s, phase, FlopsConvention::executed) / double(phase_tokens(s.recipe, phase));
  };
  CompiledSession session = compile(r);
  return {session, flops(session), memory_alternatives(session, compile, flops)};
}

}  // namespace

TEST(Alternatives, NeedLessAndSayWhatTheyCost) {
  Planned x = alternatives([](Recipe& r) { r.attention = "naive", r.fusion = "off"; });
  std::set<std::string> flags;
  for (size_t i = 0; i < x.list.size(); ++i) {
    EXPECT_LT(x.list[i].planned_bytes, x.session.planned_bytes()) << x.list[i].flags;
    EXPECT_TRUE(flags.insert(x.list[i].flags).second) << x.list[i].flags << " twice";
    if (i) {
      EXPECT_LE(x.list[i - 1].planned_bytes, x.list[i].planned_bytes) << "least first";
    }
  }
  ASSERT_TRUE(x.find("--attention flash"));
  ASSERT_TRUE(x.find("--fusion on"));
  ASSERT_TRUE(x.find("--precision bf16"));
  const Alternative* full = x.find("--recompute full");
  ASSERT_TRUE(full);
  EXPECT_GT(full->flops_per_token, 1.1 * x.flops_per_token);
  const Alternative* half = x.find("--batch 4 --grad-accumulation 2");
  ASSERT_TRUE(half);
  EXPECT_NEAR(half->flops_per_token, x.flops_per_token, 0.01 * x.flops_per_token) << "the same work";
}

TEST(Alternatives, WhatDoesNotGoTogetherIsLeftOut) {
  Planned x = alternatives([](Recipe& r) { r.precision = "bf16", r.batch = 1; });
  for (auto& a : x.list) {
    EXPECT_EQ(a.flags.find("--batch"), std::string::npos) << "one sequence cannot be halved";
    EXPECT_EQ(a.flags.find("--precision"), std::string::npos);
  }
  EXPECT_TRUE(x.find("--grad-dtype bf16"));
}

TEST(Alternatives, InferenceHasNothingToRecompute) {
  Planned x = alternatives([](Recipe&) {}, BenchPhase::forward);
  for (auto& a : x.list) EXPECT_EQ(a.flags.find("--recompute"), std::string::npos) << a.flags;
}

}  // namespace crest::test
