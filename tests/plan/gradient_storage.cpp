// Gradients in the transient arena: their part of it, without other data in them or in the update.
#include "plan/gradient_storage.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "device/find.h"
#include "model/parameters.h"
#include "passes/tiny.h"
#include "run/executor.h"
#include "run/parameters.h"
#include "train/engine.h"

using namespace crest;
using namespace crest::test;

namespace {

Device two_threads() { return find_device("cpu", 2); }

Recipe storage_recipe(bool llama, const char* precision = "fp32") {
  Recipe r = tiny_recipe(llama);
  r.model.layers = 4, r.precision = precision, r.fusion = "on", r.recompute = "none";
  return r;
}

SessionUse all_uses() {
  SessionUse use;
  use.train = use.update = use.validation = use.sampling = true;
  use.prefill = 3;
  return use;
}

void tokens(uint64_t sample, const Recipe& r, int32_t* x, int32_t* y) {
  for (int64_t t = 0; t < r.seq_length(); ++t) {
    x[t] = int32_t((sample * 31 + uint64_t(t) * 7) % uint64_t(r.model.vocab));
    y[t] = int32_t((x[t] * 5 + 3) % r.model.vocab);
  }
}

std::vector<float> weights(const Executor& e) {
  std::vector<float> all;
  for (auto& p : parameters(e)) {
    std::vector<float> w(size_t(p.numel()));
    p.get(w.data());
    all.insert(all.end(), w.begin(), w.end());
  }
  return all;
}

// NaN in every word of the transient arena outside gaps between gradients.
int poison(const Executor& e) {
  const CompiledSession& s = e.session();
  const PersistentBlock& first = s.gradients.at(0);
  int update = s.find("update"), holes = 0;
  auto* arena = static_cast<char*>(e.tensor(update, first.name).data) - first.offset;
  std::vector<char> free(size_t(s.transient_bytes), 1);
  for (auto& b : s.programs[size_t(update)].memory.blocks)
    if (b.storage == no_value && b.category == Category::gradients)
      std::fill_n(free.begin() + b.offset, b.bytes, 0), ++holes;
  float nan = std::numeric_limits<float>::quiet_NaN();
  for (size_t i = 0; i + 4 <= free.size(); i += 4)
    if (free[i] && free[i + 3]) std::memcpy(arena + i, &nan, 4);
  return holes;
}

}  // namespace

// Sizes other than multiples of 64 leave gaps. The flat update reads the gaps.
TEST(GradientStorage, NothingThatAStepLeavesReachesTheNext) {
  for (bool llama : {false, true})
    for (const char* precision : {"fp32", "bf16"})
      for (const char* fusion : {"on", "off"})
        for (const char* recompute : {"none", "full"}) {
          SCOPED_TRACE(testing::Message() << llama << " " << precision << " fusion " << fusion << " " << recompute);
          Recipe r = storage_recipe(llama, precision);
          r.fusion = fusion, r.recompute = recompute;
          std::vector<std::vector<float>> ends;
          for (bool dirty : {false, true}) {
            Engine engine(compile(r, two_threads(), session_programs(r, all_uses())));
            engine.initialize_weights(3);
            SampleSource source = [&](uint64_t g, int32_t* x, int32_t* y, int32_t*) { tokens(g, r, x, y); };
            for (int s = 0; s < 3; ++s) {
              if (dirty) {
                EXPECT_GT(poison(engine.rank(0)), 0);
              }
              StepResult result = engine.step(s, 1e-2, 11, source);
              EXPECT_TRUE(std::isfinite(result.loss) && std::isfinite(result.grad_norm));
              if (dirty) engine.validate(1, source);
            }
            ends.push_back(weights(engine.rank(0)));
          }
          EXPECT_EQ(ends[0], ends[1]);
        }
}

// A gradient has one address in its Programs, and occupies it from its first write to its last
// read.
TEST(GradientStorage, TensorsAreTakenFromWriteToUpdate) {
  Recipe r = storage_recipe(false);
  CompiledSession s = compile(r, two_threads(), session_programs(r, all_uses()));
  Executor e(s);
  int train = s.find("train"), update = s.find("update");
  for (const char* name : {"grad.wte.weight", "grad.h.1.attn.qkv.weight", "grad.ln_f.bias"})
    EXPECT_EQ(e.tensor(train, name).data, e.tensor(update, name).data) << name;
  int tensors = 0, late = 0;
  for (auto& b : s.programs[size_t(train)].memory.blocks) {
    if (b.category != Category::gradients || b.storage == no_value) continue;
    ++tensors;
    late += b.first > 0;
    EXPECT_EQ(b.last, int(s.programs[size_t(train)].program.code.size()) - 1) << b.name;
  }
  EXPECT_EQ(size_t(tensors), s.programs[size_t(train)].program.params.size());
  EXPECT_EQ(late, tensors) << "none is written by the first instruction";
  for (auto& b : s.programs[size_t(update)].memory.blocks)
    if (b.category == Category::gradients && b.storage != no_value) {
      EXPECT_EQ(b.first, 0) << b.name;
    }
  for (auto& b : s.persistent) EXPECT_NE(b.category, Category::gradients) << b.name;
}

// With several micro steps, gradients exist from the first forward pass on.
TEST(GradientStorage, NotWhereMicroStepsAddUp) {
  Recipe r = storage_recipe(false);
  CompiledSession one = compile(r, two_threads(), session_programs(r, all_uses()));
  r.grad_accumulation = 2;
  CompiledSession two = compile(r, two_threads(), session_programs(r, all_uses()));
  EXPECT_TRUE(two.gradients.empty());
  EXPECT_FALSE(one.gradients.empty());
  EXPECT_LT(one.planned_bytes(), two.planned_bytes());
  SessionUse alone;
  alone.update = true;
  EXPECT_TRUE(compile(r, two_threads(), session_programs(r, alone)).gradients.empty()) << "nor in a Program by itself";
}

// The shard of a sum exists from the end of the last micro step on, so it takes the memory of
// activations (--shard optimizer).
TEST(GradientStorage, ShardsOfSumsTakeNoMemoryOfTheirOwn) {
  Recipe r;
  r.model = load_model_config("gpt2-1558M");
  r.precision = "bf16", r.batch = 16, r.ranks = 2, r.grad_accumulation = 2;
  SessionUse use;
  use.train = use.update = true;
  auto plan = [&](const char* shard, const char* reduce) {
    r.pass_settings["shard"] = shard, r.pass_settings["reduce"] = reduce;
    return compile(r, two_threads(), session_programs(r, use), {.verify = false});
  };
  const CompiledSession none = plan("none", "flat");
  for (const char* reduce : {"flat", "bucket"}) {
    const CompiledSession s = plan("optimizer", reduce);
    for (auto& b : s.persistent) EXPECT_FALSE(b.name.starts_with("shard_")) << b.name;
    // Half of the state: fp32 moments, and the 16 bits that bf16 weights lack of fp32.
    const double saved = (4 + 4 + 2) * double(parameter_count(r.model)) / 2;
    EXPECT_NEAR(double(none.planned_bytes() - s.planned_bytes()), saved, 0.02 * saved) << reduce;
  }
}

// GPT-2 124M on 1024 tokens: activations and gradients together take no more than the larger of
// their live sums, within a twentieth.
TEST(GradientStorage, SavesMostOfTheSmaller) {
  Recipe r;
  r.model = load_model_config("gpt2-124M");
  r.batch = 4, r.seq = 256, r.precision = "fp32";
  SessionUse use;
  use.train = use.update = true;
  CompiledSession s = compile(r, two_threads(), session_programs(r, use));
  const MemoryPlan& m = s.programs[size_t(s.find("train"))].memory;
  EXPECT_LE(double(m.bytes), 1.05 * double(m.live_peak));
  int64_t gradients = 4 * parameter_count(r.model);
  r.grad_accumulation = 2;
  CompiledSession apart = compile(r, two_threads(), session_programs(r, use));
  EXPECT_LT(s.planned_bytes(), apart.planned_bytes() - gradients / 2);
}
