// The search on a device that is elsewhere: by planning and predicting alone.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <limits>

#include "core/temporary_folder.h"
#include "core/text.h"
#include "passes/recompute.h"
#include "plan/plan_report.h"
#include "plan/recipe_settings.h"
#include "plan/training_use.h"
#include "predict/step_time.h"
#include "program/text.h"
#include "tune/level_mix.h"
#include "tune/step_plans.h"
#include "tune/tune.h"

namespace crest::test {

namespace {

struct Elsewhere {
  DataSheet sheet = find_data_sheet("h100");
  Device device = described_device(sheet);
  std::optional<Calibration> calibration = find_calibration("", device);
  TuneOptions options;
  const TemporaryFolder folder;

  // Few layers with long matmuls: their times differ by the level of recompute.
  Elsewhere() {
    const std::string model = folder / "wide.toml";
    std::ofstream(model) << "layers = 4\nwidth = 1024\nheads = 8\nvocab = 4096\ncontext = 1024\n";
    options.recipe.given = {{"model", {model}}, {"precision", {"bf16"}}, {"attention", {"flash"}}};
    options.global_batch = 16, options.sheet = sheet;
  }
  Recipe recipe(const GivenSettings& more) const {
    RecipeOptions o = options.recipe;
    for (auto& [name, values] : more) o.given[name] = values;
    return resolve(o.finish("nano"), device);
  }
  CompiledSession session(const Recipe& r) const {
    return compile(r, device, session_programs(r, training_use), {.verify = false});
  }
  int64_t bytes(const Recipe& r) const { return session(r).limited_bytes(); }
};

}  // namespace

// What planning every combination finds, or something faster: layers with different levels.
TEST(DescribedTune, FindsWhatIsFastestOfAll) {
  Elsewhere e;
  struct Plan {
    int64_t bytes;
    double ms;
  };
  std::vector<Plan> all;
  for (int64_t batch : {1, 2, 4, 8, 16})
    for (auto& recompute : recompute_levels)
      for (const char* offload : {"none", "optimizer"}) {
        const Recipe r = e.recipe({{"batch", {std::to_string(batch)}},
                                   {"grad-accumulation", {std::to_string(16 / batch)}},
                                   {"recompute", {recompute}},
                                   {"offload", {offload}}});
        const CompiledSession session = e.session(r);
        all.push_back({session.limited_bytes(), step_time(session, &*e.calibration, &e.sheet).step()->ms});
      }
  std::vector<int64_t> sizes;
  for (auto& p : all) sizes.push_back(p.bytes);
  std::sort(sizes.begin(), sizes.end());
  int mixed = 0, offloaded = 0;
  for (size_t place : {sizes.size() / 8, sizes.size() / 2, 5 * sizes.size() / 6}) {
    const int64_t limit = sizes[place] + (int64_t(1) << 20);
    double best = std::numeric_limits<double>::infinity();
    for (auto& p : all)
      if (p.bytes <= limit) best = std::min(best, p.ms);
    const TuneResult r = tune(e.options, e.device, limit, &*e.calibration, [](auto&) {});
    double found = std::numeric_limits<double>::infinity();
    for (auto& c : r.candidates) {
      EXPECT_LE(c.planned_bytes, limit) << change_text(c);
      found = std::min(found, c.predicted->ms);
      mixed += c.recipe.recompute.starts_with("layers=");
      offloaded += settings_of(c.recipe).at("offload").text() == "optimizer";
    }
    EXPECT_LE(found, 1.0001 * best) << "of " << format_bytes(double(limit));
    EXPECT_LE(r.candidates[r.best].predicted->ms, (1 + r.tolerance) * found);
    // The printed command plans what was predicted.
    EXPECT_EQ(e.bytes(r.candidates[r.best].recipe), r.candidates[r.best].planned_bytes);
  }
  EXPECT_GT(mixed, 0);
  EXPECT_GT(offloaded, 0);
}

// An update is compiled once for recipes with the same update.
TEST(DescribedTune, SharesTheUpdateOfEqualSteps) {
  Elsewhere e;
  StepPlans plans(e.device, int64_t(80) << 30);
  for (const GivenSettings& given : std::vector<GivenSettings>{
           {},
           {{"batch", {"2"}}, {"grad-accumulation", {"4"}}},
           {{"batch", {"4"}}, {"grad-accumulation", {"2"}}, {"recompute", {"full"}}, {"attention", {"naive"}}},
           {{"loss-chunk", {"128"}}, {"offload", {"optimizer"}}},
           {{"precision", {"fp8"}}, {"grad-accumulation", {"4"}}, {"fp8-weights", {"update"}}},
           {{"optimizer", {"muon"}}, {"recompute", {"selective"}}},
           {{"grad-dtype", {"bf16"}}, {"grad-accumulation", {"2"}}}}) {
    const Recipe r = e.recipe(given);
    const CompiledSession step = plans.step_of(r),
                          own = compile(r, e.device, session_programs(r, {.train = true, .update = true}),
                                        {.verify = false});
    EXPECT_EQ(step.planned_bytes(), own.planned_bytes()) << join(recipe_flags(r), " ");
    EXPECT_EQ(step.host_bytes, own.host_bytes);
    EXPECT_EQ(step.programs.size(), own.programs.size());
    for (auto& c : own.programs) {
      const int i = step.find(c.spec.name);
      ASSERT_GE(i, 0) << c.spec.name;
      EXPECT_EQ(print(step.programs[size_t(i)].program), print(c.program)) << c.spec.name;
      EXPECT_EQ(step.programs[size_t(i)].memory.bytes, c.memory.bytes) << c.spec.name;
    }
    const PlannedStep plan = plans.plan(r);
    EXPECT_EQ(plan.bytes, e.bytes(r));
    EXPECT_TRUE(plan.fits);
  }
}

TEST(LevelMix, PromisesTheLineBetweenTwoLevels) {
  LevelMix mix;
  mix.add(0, 1, "none", 60, 100), mix.add(0, 1, "full", 40, 130);
  mix.add(0, 2, "none", 100, 90), mix.add(0, 2, "full", 60, 120);
  mix.add(0, 4, "full", 100, 115);  // none: 180 bytes, as the line continues
  EXPECT_EQ(mix.fastest(), 90);
  const auto promises = mix.promises(120);
  ASSERT_EQ(promises.size(), 1u) << "the others fit without recompute";
  EXPECT_EQ(promises[0].batch, 4);
  EXPECT_DOUBLE_EQ(promises[0].ms, 115 + 0.25 * (90 - 115));
  const auto less = mix.promises(80);
  ASSERT_EQ(less.size(), 1u);
  EXPECT_EQ(less[0].batch, 2);
  EXPECT_DOUBLE_EQ(less[0].ms, 105);
  EXPECT_TRUE(mix.promises(30).empty()) << "nothing fits";
}

}  // namespace crest::test
