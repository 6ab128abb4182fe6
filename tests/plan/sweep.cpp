// Random plans, checked for the properties of every plan.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/random.h"
#include "device/find.h"
#include "plan/plan_json.h"
#include "plan/recipe_settings.h"
#include "plan/session_properties.h"
#include "plan/step_flops.h"
#include "plan/training_use.h"

namespace crest::test {

namespace {

using Json = nlohmann::ordered_json;

// Choices of a random recipe, all from one seed.
class Choices {
 public:
  explicit Choices(uint64_t seed) : seed_(seed) {}
  size_t below(size_t n) { return random_bits(seed_, 0, taken_++) % n; }
  template <class T>
  T one_of(const std::vector<T>& list) {
    return list[below(list.size())];
  }

 private:
  uint64_t seed_, taken_ = 0;
};

// Settings that `auto` would choose by the batch are given, so only the batch differs.
Recipe random_recipe(Choices& c) {
  Recipe r;
  r.model = load_model_config(c.one_of<std::string>({"nano", "llama-nano"}));
  r.model.layers = 1 + int64_t(c.below(3));
  r.model.vocab = c.one_of<int64_t>({256, 1000, 4096});
  r.batch = 1 + int64_t(c.below(6));
  r.seq = c.one_of<int64_t>({16, 33, 128, 256});
  r.grad_accumulation = 1 + int64_t(c.below(3));
  GivenSettings given;
  given["precision"] = {c.one_of<std::string>({"fp32", "bf16", "fp16"})};
  given["attention"] = {c.one_of<std::string>({"flash", "naive"})};
  given["fusion"] = {c.one_of<std::string>({"on", "off"})};
  given["recompute"] = {c.one_of<std::string>({"none", "activation", "pointwise", "selective", "full"})};
  given["loss-chunk"] = {c.one_of<std::string>({"off", "16"})};
  given["optimizer"] = {c.one_of<std::string>({"adamw", "adamw-8bit", "sgd", "lion", "adafactor"})};
  given["ranks"] = {c.one_of<std::string>({"1", "1", "2", "4"})};
  if (given["ranks"][0] != "1" && c.below(2)) given["shard"] = {c.one_of<std::string>({"optimizer", "gradients"})};
  settings_of(r).apply(given);
  return r;
}

CompiledSession planned(Recipe r, const Device& device, int64_t batch) {
  r.batch = batch;
  Recipe resolved = resolve(r, device);
  return compile(resolved, device, session_programs(resolved, training_use), {.verify = false});
}

void expect_sums(const CompiledSession& s) {
  const Json memory = memory_to_json(s, 3);
  int64_t sum = 0;
  for (auto& [category, bytes] : memory["by_category"].items()) {
    EXPECT_GE(bytes.get<int64_t>(), 0) << category;
    sum += bytes.get<int64_t>();
  }
  EXPECT_EQ(sum, memory["planned_bytes"]);
  EXPECT_EQ(s.persistent_bytes + s.transient_bytes + s.library_bytes, s.planned_bytes());
  int64_t transient = 0, persistent = 0;
  for (auto& c : s.programs) {
    transient = std::max(transient, c.memory.bytes);
    EXPECT_LE(c.memory.live_peak, c.memory.bytes) << c.spec.name;
  }
  EXPECT_EQ(transient, s.transient_bytes) << "Programs share one arena";
  for (auto& block : s.persistent) persistent = std::max(persistent, block.offset + block.bytes);
  EXPECT_LE(persistent, s.persistent_bytes);
  EXPECT_GT(executed_flops(s), 0);
}

}  // namespace

TEST(PlanSweep, RandomPlansAddUpAndGrowWithTheBatch) {
  int planned_recipes = 0, refused = 0;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    Choices choices(seed);
    const Device device = find_device(choices.one_of<std::string>({"cpu", "h100", "a100", "v100"}), 2);
    const Recipe r = random_recipe(choices);
    SCOPED_TRACE(std::to_string(seed) + " on " + device.name);
    try {
      CompiledSession small = planned(r, device, r.batch), large = planned(r, device, 2 * r.batch);
      expect_sums(small);
      EXPECT_LE(small.planned_bytes(), large.planned_bytes()) << "twice the batch";
      EXPECT_LE(small.kept_bytes(), large.kept_bytes());
      // Of the update everything is the same.
      EXPECT_GT(executed_flops(large), 1.5 * executed_flops(small));
      EXPECT_LE(executed_flops(large), 2 * executed_flops(small));
      EXPECT_EQ(step_tokens(large), 2 * step_tokens(small));
      EXPECT_EQ(small.persistent_bytes, large.persistent_bytes);
      ++planned_recipes;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), Exit::usage) << e.what();  // settings that exclude each other
      ++refused;
    }
  }
  EXPECT_GT(planned_recipes, 200);
  EXPECT_GT(refused, 0);
}

}  // namespace crest::test
