// --recompute budget= against every combination of levels, and layers= itself.
#include "predict/defaults.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <limits>
#include <map>

#include "bench/phase_runner.h"
#include "core/error.h"
#include "device.h"
#include "device/data_sheet.h"
#include "passes/offload.h"
#include "passes/recompute.h"
#include "plan/recipe_settings.h"
#include "predict/predicted_step.h"
#include "program/text.h"

namespace crest::test {

namespace {

Device cpu() { return this_cpu(1); }

Recipe small(const std::string& recompute = "none", const char* precision = "fp32") {
  Recipe r;
  settings_of(r).apply(
      {{"model", {"nano"}}, {"vocab", {"256"}}, {"batch", {"4"}}, {"seq", {"64"}}, {"precision", {precision}}});
  r.model.layers = 3;
  r.recompute = recompute;
  return r;
}

CompiledSession step_of(const Recipe& r) {
  return compile_phase(resolve(r, cpu()), cpu(), BenchPhase::step, {.verify = false});
}

// The planned bytes, and a time by FLOPs and bytes.
StepCost cost(const std::string& value) {
  static std::map<std::string, StepCost> known;
  auto [it, added] = known.emplace(value, StepCost());
  if (!added) return it->second;
  CompiledSession session = step_of(small(value));
  it->second.bytes = session.planned_bytes();
  for (auto& row : step_rows(session).instrs)
    it->second.ms += 1e3 * std::max(row.flops / 1e11, row.bytes / 1e10) + 1e-4 * row.calls;
  return it->second;
}

StepCost no_away(const std::string& value, int64_t) { return cost(value); }

std::string text(const Recipe& r) { return print(step_of(r).programs[0].program); }

}  // namespace

TEST(RecomputeLayers, AreWrittenInOrder) {
  using List = std::vector<std::string>;
  EXPECT_EQ(recompute_by_layer("layers=full:2+none", 4), (List{"full", "full", "none", "none"}));
  EXPECT_EQ(recompute_by_layer("layers=full:1+pointwise:2+none:1", 4),
            (List{"full", "pointwise", "pointwise", "none"}));
  EXPECT_EQ(recompute_by_layer("selective", 2), (List{"selective", "selective"}));
  EXPECT_EQ(recompute_value({"full", "full", "none"}), "layers=full:2+none:1");
  EXPECT_EQ(recompute_value({"full", "full"}), "full");
  for (const char* other_model : {"layers=full:2+none:1", "layers=full:5", "layers=none:4+full:1"})
    EXPECT_THROW(recompute_by_layer(other_model, 4), Error) << other_model;
}

TEST(RecomputeLayers, WrongTextsAreRefused) {
  Recipe r;
  for (const char* wrong :
       {"layers=", "layers=all", "layers=full+none", "layers=full:0", "layers=full:x", "layers=full:-1", "layers=auto",
        "layers=full:1:2", "budget=", "budget=much", "budget=0", "half"})
    EXPECT_THROW(settings_of(r).apply({{"recompute", {wrong}}}), Error) << wrong;
  for (const char* right : {"layers=full", "layers=full:1+none", "budget=40GiB", "budget=500MB"})
    EXPECT_NO_THROW(settings_of(r).apply({{"recompute", {right}}})) << right;
}

TEST(RecomputeLayers, OneLevelForAllIsThatLevel) {
  for (auto& level : recompute_levels) EXPECT_EQ(text(small("layers=" + level + ":3")), text(small(level))) << level;
  auto resolved = [](const std::string& value) { return resolve(small(value), cpu()).recompute; };
  EXPECT_EQ(resolved("layers=full:3"), "full");
  EXPECT_EQ(resolved("layers=full:1+none:1+none"), "layers=full:1+none:2");
  EXPECT_NE(text(small("layers=full:1+none")), text(small("full")));
  EXPECT_NE(text(small("layers=full:1+none")), text(small("none")));
}

TEST(RecomputeBudget, IsAsFastAsTheBestOfAllCombinations) {
  std::vector<std::string> all;
  for (auto& a : recompute_levels)
    for (auto& b : recompute_levels)
      for (auto& c : recompute_levels) all.push_back(recompute_value({a, b, c}));
  int64_t least = std::numeric_limits<int64_t>::max(), most = 0;
  for (auto& value : all) least = std::min(least, cost(value).bytes), most = std::max(most, cost(value).bytes);
  ASSERT_LT(double(least), 0.9 * double(most)) << "the model is too small to tell";
  int mixed = 0;
  for (double share : {0.0, 0.1, 0.25, 0.4, 0.5, 0.6, 0.75, 0.9, 1.0}) {
    int64_t budget = least + int64_t(share * double(most - least));
    double best = std::numeric_limits<double>::infinity();
    for (auto& value : all)
      if (cost(value).bytes <= budget) best = std::min(best, cost(value).ms);
    RecomputeChoice choice = choose_recompute(3, budget, no_away);
    EXPECT_LE(choice.cost.bytes, budget) << share;
    EXPECT_LE(choice.cost.ms, 1.02 * best) << share << ": " << choice.value;
    mixed += choice.value.starts_with("layers=");
  }
  EXPECT_GT(mixed, 2) << "budgets between the levels need several levels";
}

TEST(RecomputeBudget, NamesTheClosestWhereNothingFits) {
  RecomputeChoice choice = choose_recompute(3, 1000, no_away);
  EXPECT_GT(choice.cost.bytes, 1000);
  for (auto& level : recompute_levels) EXPECT_LE(choice.cost.bytes, cost(level).bytes);
  Recipe r = small("budget=1MB");
  try {
    with_defaults(r, cpu(), INT64_MAX);
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Exit::does_not_fit);
    EXPECT_NE(e.problem().find("the closest needs"), std::string::npos) << e.problem();
  }
}

// Against every number of layers away next to one level for the others.
TEST(RecomputeBudget, WithOffloadSomeLayersTravelAndOthersRepeat) {
  const Device h100 = described_device(find_data_sheet("h100"));
  Recipe given;
  settings_of(given).apply({{"model", {"gpt2-xl"}}, {"precision", {"bf16"}}, {"batch", {"8"}}});
  given.model.layers = 6;
  const SessionUse use = {.train = true, .update = true};
  const StepTimer timer = assumed_step_times({}, h100);
  auto cost_of = [&](const std::string& recompute, const std::string& offload) {
    Recipe r = given;
    r.recompute = recompute, r.pass_settings["offload"] = offload;
    const CompiledSession s = compile(r, h100, session_programs(r, use), {.verify = false});
    return StepCost{timer.ms(s, {}), s.planned_bytes()};
  };
  std::vector<StepCost> stay, away;
  for (auto& level : recompute_levels) stay.push_back(cost_of(level, "none"));
  for (int n = 1; n <= 5; ++n)
    for (const char* others : {"pointwise", "full"})
      away.push_back(cost_of(fmt::format("layers=pointwise:{}+{}", n, others), fmt::format("activations={}", n)));
  const int64_t least = stay.back().bytes, most = stay.front().bytes;
  int both = 0;
  for (double share : {0.02, 0.1, 0.2, 0.35, 0.5}) {
    Recipe r = given;
    const int64_t budget = least + int64_t(share * double(most - least));
    r.recompute = fmt::format("budget={}", budget), r.pass_settings["offload"] = "activations";
    r = recompute_within_budget(r, h100, {}, {}, use);
    const StepCost chosen = cost_of(r.recompute, r.pass_settings["offload"]);
    EXPECT_LE(chosen.bytes, budget);
    for (auto* list : {&stay, &away})
      for (const StepCost& other : *list)
        if (other.bytes <= budget) {
          EXPECT_LE(chosen.ms, 1.005 * other.ms) << share << " " << r.recompute;
        }
    both += offload_choice(r.pass_settings["offload"]).activations == OffloadChoice::Activations::layers &&
            r.recompute.find("full:") != r.recompute.npos;
  }
  EXPECT_GT(both, 0);
}

TEST(RecomputeBudget, IsReplacedByAValueThatFits) {
  Recipe full = with_defaults(small("budget=1GiB"), cpu(), INT64_MAX);
  EXPECT_TRUE(recompute_budget(full.recompute).empty());
  const SessionUse use = training_use;
  auto bytes = [&](const std::string& value) {
    Recipe r = resolve(small(value), cpu());
    return compile(r, cpu(), session_programs(r, use), {.verify = false}).planned_bytes();
  };
  int64_t budget = (bytes("none") + bytes("full")) / 2;
  Recipe r = with_defaults(small("budget=" + std::to_string(budget)), cpu(), INT64_MAX);
  EXPECT_LE(bytes(r.recompute), budget) << r.recompute;
  EXPECT_THROW(resolve(small("budget=1GiB"), cpu()), Error);
}

}  // namespace crest::test
