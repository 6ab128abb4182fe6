// Meshes searched by prediction: bounds below every plan, and counts that add up.
#include "tune/mesh_search.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/text.h"
#include "plan/plan_report.h"
#include "plan/stage_plans.h"
#include "plan/training_use.h"
#include "predict/step_time.h"
#include "tune/mesh_bounds.h"

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

struct Planned {
  std::string text;
  int64_t bytes = 0;
  double ms = 0;
};

// Plans and predicts every combination without pruning and without bounds, and checks the bounds.
std::vector<Planned> exhaustive(const Case& c) {
  const Recipe start = c.options.recipe.finish("nano");
  const MeshBounds bounds(start.model);
  const double peak = c.calibration->times.rate("bf16");
  const CompileOptions quick = {.verify = false};
  std::vector<Planned> all;
  auto choices = [&](const char* name, std::vector<std::string> values) {
    auto it = c.options.recipe.given.find(name);
    return it == c.options.recipe.given.end() ? values : it->second;
  };
  for (int tensor = 1; tensor <= start.ranks; ++tensor)
    for (int pipeline = 1; pipeline * tensor <= start.ranks; ++pipeline)
      for (auto& schedule : choices("schedule-pipeline", {"1f1b", "zero-bubble", "interleaved:2"}))
        for (auto& shard : choices("shard", {"none", "optimizer", "gradients", "weights"}))
          for (int64_t batch : {1, 2, 4})
            for (auto& recompute : choices("recompute", {"none", "pointwise", "selective", "full"})) {
              const int data = start.ranks / tensor / pipeline;
              if (data * tensor * pipeline != start.ranks || c.options.global_batch % (data * batch)) continue;
              if ((pipeline == 1 && schedule != "1f1b") || (data == 1 && shard != "none")) continue;
              RecipeOptions o = c.options.recipe;
              o.given["mesh"] = {fmt::format("data={},tensor={},pipeline={}", data, tensor, pipeline)};
              if (pipeline > 1) o.given["schedule-pipeline"] = {schedule};
              if (data > 1) o.given["shard"] = {shard};
              o.given["batch"] = {std::to_string(batch)}, o.given["recompute"] = {recompute};
              o.given["grad-accumulation"] = {std::to_string(c.options.global_batch / data / batch)};
              try {
                const Recipe r = resolve(o.finish("nano"), c.device);
                const CompiledSession steps = compile_phase(r, c.device, BenchPhase::step, quick);
                CompiledSession whole = steps;
                extend(whole, session_programs(r, training_use), quick);
                Planned p{join(recipe_flags(r), " "), 0, 0};
                for (int stage = 0; stage < pipeline; ++stage)
                  p.bytes = std::max(p.bytes, (stage ? for_stage(whole, stage, quick) : whole).limited_bytes());
                p.ms = step_time(largest_stage(steps, quick), &*c.calibration, &c.sheet).step()->ms;
                EXPECT_LE(bounds.least_bytes(r), p.bytes) << p.text;
                EXPECT_LE(bounds.least_ms(r, peak), p.ms) << p.text;
                EXPECT_GT(bounds.least_bytes(r), 0);
                all.push_back(std::move(p));
              } catch (const Error& e) {
                if (e.code() != Exit::usage) throw;
              }
            }
  return all;
}

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

// The search finds what planning everything finds: with all weights trained, and with the settings
// whose memory is elsewhere or missing (adapters over 8-bit weights, state in host memory).
TEST(MeshSearch, FindsTheFastestOfAllMeshes) {
  struct Settings {
    const char* ranks;
    std::vector<std::pair<const char*, const char*>> given;
  };
  for (const Settings& settings :
       {Settings{"4", {{"schedule-pipeline", "1f1b"}, {"recompute", "full"}, {"shard", "optimizer"}}},
        Settings{"2",
                 {{"offload", "optimizer"},
                  {"offload-piece", "64KiB"},
                  {"recompute", "full"},
                  {"schedule-pipeline", "1f1b"}}},
        Settings{"2", {{"lora", "4"}, {"base-weights", "int8"}, {"shard", "optimizer"}}}}) {
    Case c(settings.ranks);
    c.options.vary = {"mesh"}, c.options.global_batch = 4;
    for (auto& [name, value] : settings.given) c.options.recipe.given[name] = {value};
    SCOPED_TRACE(settings.ranks + std::string(settings.given.empty() ? "" : settings.given[0].first));
    std::vector<Planned> all = exhaustive(c);
    ASSERT_GT(all.size(), 4U);
    std::sort(all.begin(), all.end(), [](auto& a, auto& b) { return a.bytes < b.bytes; });
    // With room for all plans, and for a third.
    for (size_t most : {all.size() - 1, all.size() / 3}) {
      const int64_t limit = all[most].bytes;
      const Planned* fastest = nullptr;
      for (auto& p : all)
        if (p.bytes <= limit && (!fastest || p.ms < fastest->ms)) fastest = &p;
      const MeshSearchResult found = c.run(limit);
      EXPECT_LE(found.best[0].planned_bytes, limit);
      EXPECT_NEAR(found.best[0].ms / fastest->ms, 1, 1e-9) << fastest->text;
    }
  }
}

}  // namespace crest::test
