// --fp8-weights update: 8-bit weights from the update equal the weights that the next step would
// make, bit for bit. This holds for every optimizer, for shared and skipped updates, and for
// continued runs.
#include <fmt/format.h>

#include "checkpoint/checkpoint.h"
#include "device/data_sheet.h"
#include "device/find.h"
#include "passes/fp8.h"
#include "train/fp8_harness.h"
#include "train/run_fixture.h"
#include "train/run_state.h"

using namespace crest;
using namespace crest::test;

namespace {

Recipe with_weights(Recipe r, const char* made) {
  r.pass_settings["fp8-weights"] = made;
  return r;
}

CompiledSession fp8_session(const Recipe& r, const Device& device) {
  SessionUse use;
  use.train = use.update = true;
  return compile(r, device, session_programs(r, use));
}

const Program& program_of(const CompiledSession& s, const char* name) {
  return s.programs[size_t(s.find(name))].program;
}

// The tables' content for each step, besides the losses.
struct Steps {
  std::vector<double> losses, saturated, vanished;
  std::vector<std::vector<float>> amax;
  bool operator==(const Steps&) const = default;
};

void run_steps(Engine& e, const Recipe& r, int from, int to, double lr, Steps& steps) {
  for (int s = from; s < to; ++s) {
    StepResult result = e.step(s, lr, 11, source_of(r));
    steps.losses.push_back(result.loss);
    steps.saturated.push_back(result.saturated), steps.vanished.push_back(result.vanished);
    if (e.rank(0).has(e.session().find("update"), fp8_amax)) steps.amax.push_back(floats(e, "update", fp8_amax));
  }
}

Steps steps_of(const Recipe& r, int count, double lr) {
  Engine e = make_engine(r);
  Steps steps;
  run_steps(e, r, 0, count, lr, steps);
  return steps;
}

void continue_with(Engine& from, Engine& to, int step) {
  TemporaryFolder folder;
  RunState state;
  state.step = step, state.seed = 11, state.threads = 2;
  save_checkpoint(contents_to_save(from, state, "", nullptr, false), folder.path(), 0);
  restore(to, Checkpoint::open(fmt::format("{}/step-{:06}", std::string(folder.path()), step)));
}

// Learning rates high enough to change the scales of weights.
constexpr double fast = 3e-2;

}  // namespace

// The counts, and the magnitudes for the next step's scales, are equal too.
TEST(Fp8Weights, OfTheUpdateAreThoseOfTheNextStep) {
  for (bool llama : {false, true})
    for (const char* fusion : {"on", "off"})
      for (int64_t micro_steps : {1, 3}) {
        SCOPED_TRACE(fmt::format("llama {}, fusion {}, {} micro steps", llama, fusion, micro_steps));
        Recipe r = fp8_recipe(llama);
        r.fusion = fusion, r.grad_accumulation = micro_steps;
        Steps kept = steps_of(with_weights(r, "keep"), 6, fast), updated = steps_of(with_weights(r, "update"), 6, fast);
        EXPECT_EQ(kept.losses, updated.losses);
        EXPECT_EQ(kept.amax, updated.amax);
        EXPECT_EQ(kept.saturated, updated.saturated);
        EXPECT_EQ(kept.vanished, updated.vanished);
      }
}

// 8-bit moments and others; split, whole and no masters; a longer history; blocks; state in host
// memory.
TEST(Fp8Weights, OfEveryUpdateAreThoseOfTheNextStep) {
  auto check = [](const std::string& what, const Recipe& r) {
    SCOPED_TRACE(what);
    EXPECT_TRUE(steps_of(with_weights(r, "keep"), 4, fast) == steps_of(with_weights(r, "update"), 4, fast));
  };
  for (const char* optimizer :
       {"adamw-unfused", "adamw-8bit", "sgd", "lion", "adafactor", "muon", "adamw-bf16-kahan"}) {
    Recipe r = fp8_recipe();
    r.optimizer = optimizer;
    check(optimizer, r);
  }
  for (auto& [setting, value] : {std::pair{"master-weights", "fp32"},
                                 {"fp8-history", "3"},
                                 {"fp8-margin", "0"},
                                 {"fp8-recipe", "block"},
                                 {"offload", "optimizer"}}) {
    Recipe r = fp8_recipe();
    r.pass_settings[setting] = value;
    check(fmt::format("--{} {}", setting, value), r);
    if (setting == std::string("offload")) r.pass_settings["offload-piece"] = "20kB", check("in pieces", r);
  }
  Recipe r = fp8_recipe();
  r.disabled_passes = {"fused_update"}, check("--disable-pass fused_update", r);
  r = fp8_recipe();
  r.grad_dtype = "bf16", check("--grad-dtype bf16", r);
  r = fp8_recipe();
  r.recompute = "full", check("--recompute full", r);
}

TEST(Fp8Weights, OfRanksAreThoseOfTheNextStep) {
  for (const char* shard : {"none", "optimizer", "gradients"})
    for (int64_t micro_steps : {1, 2}) {
      SCOPED_TRACE(fmt::format("{}, {} micro steps", shard, micro_steps));
      Recipe r = fp8_recipe();
      r.batch = 2, r.data_parallel = 2, r.grad_accumulation = micro_steps;
      r.pass_settings["shard"] = shard, r.pass_settings["reduce"] = "bucket", r.pass_settings["bucket"] = "20kB";
      EXPECT_TRUE(steps_of(with_weights(r, "keep"), 4, fast) == steps_of(with_weights(r, "update"), 4, fast));
    }
}

// A skipped step keeps the weights. Their scale may change to the scale of the step before.
TEST(Fp8Weights, OfASkippedUpdateAreThoseOfTheNextStep) {
  std::vector<Steps> all;
  for (const char* made : {"keep", "update"}) {
    Recipe r = with_weights(fp8_recipe(), made);
    Engine e = make_engine(r);
    Steps steps;
    run_steps(e, r, 0, 2, 0.3, steps);
    Scalars s = e.rank(0).scalars();
    const Scalars usual = s;
    s.loss_scale = INFINITY;
    e.rank(0).set_scalars(s);
    EXPECT_TRUE(e.step(2, 0.3, 11, source_of(r)).skipped);
    s = e.rank(0).scalars();
    s.loss_scale = usual.loss_scale;
    e.rank(0).set_scalars(s);
    run_steps(e, r, 3, 5, 0.3, steps);
    all.push_back(steps);
  }
  EXPECT_TRUE(all[0] == all[1]);
}

// A checkpoint has no 8-bit weights, so a run may continue with another --fp8-weights.
TEST(Fp8Weights, OfAContinuedRunAreThoseOfTheWholeRun) {
  for (int64_t micro_steps : {1, 2}) {
    Recipe r = fp8_recipe();
    r.grad_accumulation = micro_steps;
    const Steps whole = steps_of(with_weights(r, "keep"), 6, fast);
    for (auto [before, after] : {std::pair{"update", "update"}, {"keep", "update"}, {"update", "keep"}}) {
      SCOPED_TRACE(fmt::format("{}, then {}", before, after));
      Engine from = make_engine(with_weights(r, before)), to = make_engine(with_weights(r, after));
      Steps cut, unused;
      run_steps(from, r, 0, 3, fast, cut);
      run_steps(to, r, 0, 2, 20 * fast, unused);  // it has had larger weights: nothing of them may stay
      continue_with(from, to, 3);
      run_steps(to, r, 3, 6, fast, cut);
      EXPECT_TRUE(cut == whole);
    }
  }
}

// A step reads these copies as state, so other code that writes weights must say so.
TEST(Fp8Weights, AreMadeAnewOfWeightsThatWereChanged) {
  std::vector<double> losses;
  for (auto [made, told] : {std::pair{"keep", false}, {"update", true}, {"update", false}}) {
    Recipe r = with_weights(fp8_recipe(), made);
    Engine e = make_engine(r);
    e.step(0, fast, 11, source_of(r));
    for (auto& p : parameters(e.rank(0))) {
      std::vector<float> w(size_t(p.numel()));
      p.get(w.data());
      for (float& x : w) x *= -0.5f;
      p.set(w.data());
    }
    if (told) e.weights_changed();
    losses.push_back(e.step(1, fast, 11, source_of(r)).loss);
  }
  EXPECT_EQ(losses[0], losses[1]);
  EXPECT_NE(losses[0], losses[2]);
}

// The update is one quantizing instruction over the group; nothing else quantizes weights.
TEST(Fp8Weights, AreMadeInTheUpdateOfTheGroup) {
  for (bool llama : {false, true}) {
    const int weights = 2 * (llama ? 5 : 4);
    CompiledSession s = fp8_session(with_weights(fp8_recipe(llama), "update"), crest::test::test_device(2));
    const Program &update = program_of(s, "update"), &start = program_of(s, "start"), &train = program_of(s, "train");
    EXPECT_EQ(count(update, "quantize"), weights);
    EXPECT_EQ(count(start, "quantize"), weights);
    int joined = 0, apart = 0;
    for (auto& i : update.code) {
      joined += std::string(i.op->name) == "fused_update";
      apart += std::string(i.op->name) == "quantize";
    }
    EXPECT_EQ(joined, 1);
    EXPECT_EQ(apart, 0);
    for (auto& i : train.code)
      for (ValueId v : i.in)
        if (v != no_value && train.at(v).role == Role::weight) {
          EXPECT_NE(std::string(i.op->name).substr(0, 8), "quantize") << train.at(v).name;
        }
  }
}

// By cost: a quantizing update writes 2 bytes of a weight more. A step saves 2 with kept weights,
// and 4 with weights made again.
TEST(Fp8Weights, OfTheUpdateSaveTraffic) {
  const Device h200 = described_device(find_data_sheet("h200"));
  auto bytes = [&](const char* made) {
    Recipe r;
    r.model = load_model_config("gpt2-124M");
    r.precision = "fp8", r.batch = 4, r.pass_settings["fp8-weights"] = made;
    CompiledSession s = fp8_session(r, h200);
    double sum = 0;
    for (auto& call : training_step(s)) {
      const Program& p = s.programs[size_t(call.segment)].program;
      for (auto& i : p.code) sum += i.op->cost(p, i).bytes();
    }
    return sum;
  };
  const double weights = 12.0 * 12 * 768 * 768, few = 1e-3 * weights;
  EXPECT_NEAR(bytes("keep") - bytes("update"), 2 * weights, few);
  EXPECT_NEAR(bytes("again") - bytes("update"), 4 * weights, few);
}

// 2 bytes a weight. With micro steps, kept weights take as much.
TEST(Fp8Weights, AreInThePlan) {
  for (int64_t micro_steps : {1, 3}) {
    Recipe r = fp8_recipe();
    r.grad_accumulation = micro_steps;
    auto session = [&](const char* made) { return fp8_session(with_weights(r, made), crest::test::test_device(2)); };
    CompiledSession again = session("again"), kept = session("keep"), updated = session("update");
    int64_t weights = 0, tensors = 0;
    const Program& p = program_of(updated, "update");
    for (auto& q : p.params)
      if (p.find(q.name + ".e4m3") != no_value) weights += p.at(q.value).numel(), ++tensors;
    EXPECT_EQ(tensors, 8);
    EXPECT_NEAR(double(updated.persistent_bytes - again.persistent_bytes), double(2 * weights), 256.0 * 3 * 8);
    if (micro_steps > 1) {
      EXPECT_EQ(updated.persistent_bytes, kept.persistent_bytes);
    }
    EXPECT_EQ(Executor(updated).held_bytes(), updated.planned_bytes());
    EXPECT_EQ(session("auto").planned_bytes(), (micro_steps > 1 ? kept : again).planned_bytes());
  }
}

TEST(Fp8Weights, OfTheUpdateNeedWholeWeights) {
  Recipe r = fp8_recipe();
  r.batch = 2, r.data_parallel = 2, r.grad_accumulation = 2;
  r.pass_settings["shard"] = "weights", r.pass_settings["reduce"] = "bucket", r.pass_settings["bucket"] = "20kB";
  EXPECT_EQ(problem([&] { make_engine(with_weights(r, "update")); }),
            "the update leaves a share of the weights on each rank, which cannot be quantized as a whole");
  Engine e = make_engine(with_weights(r, "auto"));
  EXPECT_EQ(e.session().find("start"), -1);
  EXPECT_TRUE(std::isfinite(e.step(0, fast, 11, source_of(r)).loss));
}
