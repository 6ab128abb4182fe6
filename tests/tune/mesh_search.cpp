// Meshes searched by prediction: bounds below every plan, and counts that add up.
#include "tune/mesh_search.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "plan/plan_report.h"
#include "predict/step_time.h"

namespace crest::test {

namespace {

struct Case {
  DataSheet sheet = find_data_sheet("h100");
  Device device = described_device(sheet);
  std::optional<Calibration> calibration = find_calibration("", device);
  TuneOptions options;

  explicit Case(const std::string& ranks) {
    options.recipe.given = {{"model", {"nano"}}, {"seq", {"128"}},         {"precision", {"bf16"}},
                            {"ranks", {ranks}},  {"attention", {"flash"}}, {"optimizer", {"adamw"}}};
    options.global_batch = 16, options.sheet = sheet;
  }
  MeshSearchResult run(int64_t limit) const {
    return search_meshes(options, device, limit, &*calibration, [](auto&) {});
  }
};

}  // namespace

TEST(MeshSearch, IsForSeveralNodesOrIfAsked) {
  Case c("16"), one("8");
  auto searches = [](const Case& x) { return searches_meshes(x.options, x.options.recipe.finish("nano"), x.device); };
  EXPECT_TRUE(searches(c));
  EXPECT_FALSE(searches(one));
  one.options.vary = {"mesh"};
  EXPECT_TRUE(searches(one));
  Case any("16");
  any.options.global_batch = 0;
  EXPECT_FALSE(searches(any)) << "only data ranks, as before";
  c.options.recipe.given["mesh"] = {"data=16"};
  EXPECT_FALSE(searches(c));
}

// Every plan needs at least its bound, so a bound prunes nothing that could win.
TEST(MeshSearch, BoundsAreBelowThePlansAndTheCountsAddUp) {
  Case c("16");
  c.options.recipe.given["shard"] = {"optimizer"};
  c.options.recipe.given["schedule-pipeline"] = {"1f1b"};
  const MeshSearchResult all = c.run(int64_t(78) << 30);
  EXPECT_EQ(all.best.size() + all.refused_by_memory + all.pruned_by_memory + all.pruned_by_time +
                all.pruned_by_recompute + all.not_allowed + all.not_tried,
            all.combinations);
  EXPECT_GT(all.best.size(), 4U);
  EXPECT_EQ(all.refused_by_memory, 0U);
  for (size_t i = 0; i < all.best.size(); ++i) {
    const MeshCandidate& b = all.best[i];
    EXPECT_GT(b.least_ms, 0);
    EXPECT_LT(b.least_ms, b.ms);
    EXPECT_LT(b.least_bytes, b.planned_bytes);
    EXPECT_GE(b.ms, all.best[0].ms) << "fastest first";
  }
  // Less memory: the largest is refused, the others remain.
  auto less = [](auto& a, auto& b) { return a.planned_bytes < b.planned_bytes; };
  const int64_t most = std::max_element(all.best.begin(), all.best.end(), less)->planned_bytes;
  const MeshSearchResult small = c.run(most - 1);
  EXPECT_GT(small.refused_by_memory, 0U);
  EXPECT_GE(small.best[0].ms, all.best[0].ms);
  for (auto& b : small.best) EXPECT_LT(b.planned_bytes, most);
  const std::string text = text_of(c.options, all, 5, false, 200);
  EXPECT_NE(text.find(std::to_string(all.combinations) + " combinations"), std::string::npos) << text;
  EXPECT_EQ(to_json(c.options, all)["candidates"].size(), all.best.size());
  RecipeOptions best = c.options.recipe;
  best.given.erase("ranks");
  for (auto& [name, value] : all.best[0].settings) best.given[name] = {value};
  const Recipe recipe = resolve(best.finish("nano"), c.device);
  EXPECT_EQ(recipe.tokens_per_step(), all.tokens);
  EXPECT_EQ(recipe.ranks, 16);
  EXPECT_THROW(c.run(1 << 20), Error);
  c.options.global_batch = 0;
  EXPECT_THROW(c.run(int64_t(78) << 30), Error);
}

}  // namespace crest::test
