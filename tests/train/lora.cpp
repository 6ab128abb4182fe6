// Adapters (--lora): what is trained, what it needs, and that settings change neither.
#include <gtest/gtest.h>

#include "model/parameters.h"
#include "train/harness.h"

using namespace crest;

namespace {

Recipe lora_recipe(bool llama) {
  Recipe r = tiny_recipe(llama);
  r.model.lora.rank = 3;
  return r;
}

CompiledSession planned_lora(const Recipe& r) {
  SessionUse use;
  use.train = use.update = true;
  return compile(r, crest::test::test_device(1), session_programs(r, use));
}

std::vector<std::vector<float>> lora_weights(Engine& e, bool adapters) {
  std::vector<std::vector<float>> list;
  with_parameters(e, [&](const ParameterRef& p) {
    if (is_adapter(*p.info) != adapters) return;
    list.emplace_back(size_t(p.numel()));
    p.get(list.back().data());
  });
  return list;
}

double lora_distance(const std::vector<std::vector<float>>& a, const std::vector<std::vector<float>>& b) {
  double sum = 0, all = 0;
  for (size_t i = 0; i < a.size(); ++i)
    for (size_t k = 0; k < a[i].size(); ++k)
      sum += std::pow(double(a[i][k]) - b[i][k], 2), all += std::pow(double(b[i][k]), 2);
  return std::sqrt(sum / all);
}

}  // namespace

TEST(Lora, TrainsTheAdaptersAlone) {
  for (bool llama : {false, true}) {
    Recipe r = lora_recipe(llama);
    r.model.lora.rank = 8;
    SampleSource source = [&](uint64_t g, int32_t* x, int32_t* y, int32_t*) { synthetic(r, g, x, y); };
    Engine e = make_engine(r, 1);
    const auto base = lora_weights(e, false), start = lora_weights(e, true);
    for (size_t i = 1; i < start.size(); i += 2)
      EXPECT_EQ(start[i], std::vector<float>(start[i].size())) << "B is zero, so a new adapter changes nothing";
    const double before = e.validate(4, source);
    for (int s = 0; s < 60; ++s) e.step(s, 1e-2, 1, source);
    EXPECT_LT(e.validate(4, source), before - 0.2);
    EXPECT_EQ(lora_weights(e, false), base);
    EXPECT_GT(lora_distance(lora_weights(e, true), start), 0.1);
  }
}

// A of [rank, in] is uniform in +-1/sqrt(in), as peft initializes it.
TEST(Lora, InitializesAsPeft) {
  Recipe r = lora_recipe(false);
  r.model.lora.rank = 64;
  Engine e = make_engine(r, 1);
  for (auto& p : parameters(e.rank(0))) {
    if (!p.name.ends_with(lora_a)) continue;
    std::vector<float> values(size_t(p.numel()));
    p.get(values.data());
    const double bound = 1 / std::sqrt(double(p.shape[1]));
    double largest = 0, squares = 0;
    for (float x : values) largest = std::max(largest, std::abs(double(x))), squares += double(x) * x;
    EXPECT_LE(largest, bound);
    EXPECT_GT(largest, 0.99 * bound);
    EXPECT_NEAR(squares / double(values.size()), bound * bound / 3, 0.03 * bound * bound);
  }
}

// Gradients, moments and masters exist for the adapters only, to the byte.
TEST(Lora, ThePlanHasNothingForFrozenWeights) {
  for (bool llama : {false, true})
    for (const char* base : {"auto", "int8"}) {
      Recipe r = lora_recipe(llama);
      r.precision = "bf16", r.pad_vocab = 1;
      r.pass_settings["base-weights"] = base;
      const CompiledSession s = planned_lora(r);
      const Program& update = s.programs[size_t(s.find("update"))].program;
      auto grouped = [](int64_t n) { return (n + 63) / 64 * 64; };
      int64_t trained = 0, frozen = 0, in_groups = 0;
      for (auto& p : parameters_of(r.model)) {
        (is_adapter(p) ? trained : frozen) += p.shape.numel();
        EXPECT_EQ(p.frozen, !is_adapter(p)) << p.name;
        if (is_adapter(p)) in_groups += grouped(p.shape.numel());
      }
      int64_t gradients = 0, states = 0, weights = 0;
      for (size_t v = 0; v < update.values.size(); ++v) {
        const Value& value = update.values[v];
        if (value.layout.storage != ValueId(v) || value.name == "scalars") continue;
        if (value.role == Role::gradient) gradients += value.bytes();
        if (value.role == Role::state) states += value.bytes();
        if (value.role == Role::weight) weights += value.bytes();
      }
      EXPECT_EQ(gradients, 4 * in_groups);
      EXPECT_EQ(states, (2 + 4 + 4) * in_groups) << "half of the master, two moments";
      int64_t matrices = 0, outputs = 0;
      for (auto& p : parameters_of(r.model.base()))
        if (p.shape.rank() == 2 &&
            (p.name.starts_with("h.") || (r.model.tied ? p.name == "wte.weight" : p.name == "lm_head.weight")))
          matrices += p.shape.numel(), outputs += p.shape[0];
      const bool eight = base == std::string("int8");
      EXPECT_EQ(weights, 2 * (frozen + in_groups) + (eight ? 4 * outputs - matrices : 0));
      EXPECT_GT(trained, 0);
    }
}

// Passes and ranks change no result beyond rounding.
TEST(Lora, SettingsKeepTheTraining) {
  auto train_with = [](const std::function<void(Recipe&)>& change) {
    Recipe r = lora_recipe(true);
    r.model.lora.qkv_rank = 5;
    change(r);
    Engine e = make_engine(r, 1);
    SampleSource source = [&](uint64_t g, int32_t* x, int32_t* y, int32_t*) { synthetic(r, g, x, y); };
    for (int s = 0; s < 4; ++s) e.step(s, 1e-3, 1, source);
    return lora_weights(e, true);
  };
  const auto plain = train_with([](Recipe&) {});
  const std::pair<const char*, std::function<void(Recipe&)>> changes[] = {
      {"accumulation", [](Recipe& r) { r.batch = 2, r.grad_accumulation = 2; }},
      {"recompute", [](Recipe& r) { r.recompute = "full"; }},
      {"no fusion", [](Recipe& r) { r.fusion = "off", r.attention = "naive"; }},
      {"two ranks", [](Recipe& r) { r.batch = 2, r.data_parallel = 2; }},
      {"optimizer in shards",
       [](Recipe& r) { r.batch = 2, r.data_parallel = 2, r.pass_settings["shard"] = "optimizer"; }},
      {"weights in shards",
       [](Recipe& r) {
         r.batch = 2, r.data_parallel = 2, r.pass_settings["shard"] = "weights", r.pass_settings["reduce"] = "bucket";
       }},
      {"offload", [](Recipe& r) { r.pass_settings["offload"] = "optimizer"; }}};
  for (auto& [name, change] : changes) EXPECT_LT(lora_distance(train_with(change), plain), 2e-5) << name;
}

// The base in bf16 or 8 bits trains almost as in fp32, and fp8 leaves the adapters in bf16.
TEST(Lora, SmallerBasesTrainAlmostTheSame) {
  auto loss_with = [](const std::function<void(Recipe&)>& change) {
    Recipe r = lora_recipe(true);
    r.model.width = 48, r.model.ff = 80;
    change(r);
    Engine e = make_engine(r, 1);
    SampleSource source = [&](uint64_t g, int32_t* x, int32_t* y, int32_t*) { synthetic(r, g, x, y); };
    for (int s = 0; s < 30; ++s) e.step(s, 1e-2, 1, source);
    return e.validate(4, source);
  };
  const double plain = loss_with([](Recipe&) {});
  EXPECT_NEAR(loss_with([](Recipe& r) { r.pass_settings["base-weights"] = "bf16"; }), plain, 0.02 * plain);
  EXPECT_NEAR(loss_with([](Recipe& r) { r.pass_settings["base-weights"] = "int8"; }), plain, 0.02 * plain);
  EXPECT_NEAR(loss_with([](Recipe& r) { r.precision = "fp8"; }), plain, 0.05 * plain);
}
