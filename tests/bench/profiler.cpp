// Real profiles of small models on the CPU: rows, floors, explained time, memory.
#include "bench/profiler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "core/error.h"
#include "profile/profile_rates.h"
#include "profile/profile_rows.h"
#include "profile/profile_summary.h"
#include "program/op.h"
#include "train/harness.h"

namespace crest::test {

namespace {

const std::vector<ProfileRate> rates = {
    {"bandwidth", 1e10, "given"}, {"bf16", 1e12, "given"}, {"fp16", 1e12, "given"}, {"fp32", 1e11, "given"}};

struct Profiled {
  CompiledSession session;
  Profile profile;
};

Profiled profiled(const Recipe& recipe, BenchPhase phase = BenchPhase::step, int samples = 2) {
  Device device = find_device("cpu", 1);
  CompiledSession session = compile_phase(recipe, device, phase);
  PhaseRunner runner(session, phase, 1);
  ProfilerOptions options;
  options.rule = {
      .warmup = 1, .min_samples = samples, .max_samples = samples, .max_seconds = 1e9, .target_relative_ci = 0};
  options.rates = rates;
  return {std::move(session), run_profiler(runner, options)};
}

double sum(const std::vector<ProfileShare>& shares) {
  double ms = 0;
  for (auto& s : shares) ms += s.ms;
  return ms;
}

// Rules for every profile.
void expect_sound(const Profiled& x, BenchPhase phase) {
  const Profile& p = x.profile;
  double all = 0, flops = 0;
  for (auto& r : p.instrs) {
    all += r.ms, flops += r.flops;
    EXPECT_GE(r.ms, 0) << r.op;
    EXPECT_GE(r.floor_ms, 0) << r.op;
    EXPECT_FALSE(r.scopes.empty()) << r.op;
  }
  EXPECT_GT(all, 0);
  for (auto& shares : {by_class(p), by_layer(p), by_kernel(p), by_place(p), by_instruction(p)})
    EXPECT_NEAR(sum(shares), all, 1e-9 * all);
  EXPECT_NEAR(sum(by_phase(p)), all + p.idle_ms, 1e-9 * all);
  double ranks = x.session.recipe.data_parallel;
  EXPECT_NEAR(flops * ranks, phase_flops(x.session, phase, FlopsConvention::executed), 1e-6 * flops);
  // Intervals of a stream follow each other and, with the gaps between them, cover the step.
  ASSERT_FALSE(p.intervals.empty());
  std::map<int, double> end;
  for (auto& i : p.intervals) {
    EXPECT_GE(i.start_ms, end[i.stream] - 1e-6);
    end[i.stream] = i.start_ms + i.ms;
  }
  EXPECT_NEAR(p.busy_ms + p.idle_ms, p.span_ms, 1e-6 * p.span_ms);
  EXPECT_LE(p.span_ms, p.kept_ms * 1.0001);
  size_t launches = 0;
  for (auto& call : p.calls)
    launches += size_t(std::count_if(p.instrs.begin(), p.instrs.end(), [&](auto& r) { return r.program == call; }));
  EXPECT_EQ(p.intervals.size(), launches);
  EXPECT_EQ(p.launches, int64_t(launches));
  EXPECT_EQ(p.step_ms.size(), p.profiled_ms.size());
  EXPECT_EQ(p.throttled.size(), p.step_ms.size());
  EXPECT_EQ(to_json(profile_from_json(to_json(p), "test")).dump(), to_json(p).dump());
}

// The timeline's maximum equals the planner's and the process' memory.
void expect_memory(const Profiled& x) {
  const Profile& p = x.profile;
  int64_t live = 0;
  for (auto& c : x.session.programs) live = std::max(live, c.memory.live_peak);
  MemoryPoint peak = memory_peak(p);
  EXPECT_EQ(total(peak.bytes), x.session.persistent_bytes + live);
  EXPECT_EQ(p.memory.planned_bytes, x.session.planned_bytes());
  EXPECT_EQ(p.memory.measured_peak_bytes, p.memory.planned_bytes);
  int64_t held = 0, persistent = 0;
  for (auto& h : memory_holders(p, peak)) held += h.bytes;
  EXPECT_EQ(held, total(peak.bytes));
  for (auto& b : p.memory.persistent) persistent += b.bytes;
  EXPECT_EQ(persistent, p.memory.persistent_bytes);
}

Recipe with(void (*change)(Recipe&)) {
  Recipe r = tiny_recipe();
  change(r);
  return r;
}

}  // namespace

TEST(Profiler, EveryRecipeGivesASoundProfile) {
  std::pair<const char*, Recipe> recipes[] = {
      {"naive", with([](Recipe& r) { r.attention = "naive"; })},
      {"naive, not fused", with([](Recipe& r) { r.attention = "naive", r.fusion = "off"; })},
      {"accumulation", with([](Recipe& r) { r.grad_accumulation = 3; })},
      {"two ranks", with([](Recipe& r) { r.data_parallel = 2; })},
      {"recompute", with([](Recipe& r) { r.recompute = "full"; })},
      {"bf16", with([](Recipe& r) { r.precision = "bf16"; })},
      {"fp16", with([](Recipe& r) { r.precision = "fp16"; })},
      {"llama", tiny_recipe(true)},
      {"one layer, one head", with([](Recipe& r) {
         r.model.layers = 1, r.model.heads = r.model.kv_heads = 1, r.model.head_dim = 48;
         r.batch = 3, r.seq = 33;
       })},
  };
  for (auto& [name, recipe] : recipes) {
    SCOPED_TRACE(name);
    Profiled x = profiled(recipe);
    expect_sound(x, BenchPhase::step);
    expect_memory(x);
  }
}

TEST(Profiler, PhasesHaveTheirPrograms) {
  Recipe r = tiny_recipe();
  Profiled forward = profiled(r, BenchPhase::forward), backward = profiled(r, BenchPhase::backward);
  expect_sound(forward, BenchPhase::forward);
  expect_memory(forward);
  expect_sound(backward, BenchPhase::backward);
  EXPECT_EQ(forward.profile.calls, std::vector<std::string>{"validation"});
  for (auto& i : forward.profile.instrs) EXPECT_EQ(i.phase, "forward");
  auto phases = by_phase(backward.profile);
  EXPECT_TRUE(std::none_of(phases.begin(), phases.end(), [](auto& s) { return s.key == "update"; }));
  EXPECT_TRUE(std::any_of(phases.begin(), phases.end(), [](auto& s) { return s.key == "backward"; }));
  EXPECT_LT(forward.profile.memory.planned_bytes, backward.profile.memory.planned_bytes);
}

TEST(Profiler, RowsKnowTheirLayersCallsAndArithmetic) {
  Recipe r = with(
      [](Recipe& x) { x.grad_accumulation = 3, x.precision = "bf16", x.attention = "naive", x.recompute = "none"; });
  Profile p = profiled(r).profile;
  EXPECT_EQ(p.calls, (std::vector<std::string>{"train.first", "train.next", "train.next", "update"}));
  std::map<std::string, int> calls;
  for (auto& i : p.instrs) {
    calls[i.program] = i.calls;
    bool matrix = i.op_class == "contraction" || i.op_class == "attention";
    EXPECT_EQ(i.arithmetic, matrix ? "bf16" : "fp32") << i.op;
    if (i.phase == "update") {
      EXPECT_EQ(i.layer, -1) << "the update is of the whole model";
    }
  }
  EXPECT_EQ(calls, (std::map<std::string, int>{{"train.first", 1}, {"train.next", 2}, {"update", 1}}));
  auto layers = layer_times(p);
  ASSERT_EQ(layers.size(), size_t(r.model.layers));
  for (auto& l : layers) EXPECT_GT(l.forward_ms, 0);
  ProfileSummary f = summary_of(p);
  EXPECT_GT(f.softmax.rows, 0);
  EXPECT_GT(f.products.flops, f.softmax.flops);
  EXPECT_GT(f.attention.ms, f.softmax.ms + f.products.ms) << "the parts and what moves heads";
  EXPECT_GT(f.contractions.ms, f.products.ms);
  EXPECT_EQ(f.recompute_ms, 0);
  Profile flash = profiled(tiny_recipe()).profile;
  EXPECT_EQ(summary_of(flash).softmax.rows, 0);
  EXPECT_GT(summary_of(flash).attention.rows, 0);
}

TEST(Profiler, FloorsComeFromTheLimits) {
  Profile p = profiled(tiny_recipe()).profile;
  for (auto& r : p.instrs) {
    double floor = 1e3 * std::max(r.flops / 1e11, r.bytes / 1e10);
    EXPECT_NEAR(r.floor_ms, floor, 1e-12);
    EXPECT_DOUBLE_EQ(r.above_roofline_ms(), r.ms - r.floor_ms);
  }
  EXPECT_EQ(rates_needed(p), (std::set<std::string>{"bandwidth", "fp32"}));
}

TEST(Profiler, BlocksNameWhatMadeThem) {
  Profile p = profiled(tiny_recipe()).profile;
  bool seen = false;
  for (auto& b : p.memory.blocks) {
    if (b.name == "tokens") {
      EXPECT_EQ(b.scope, "input");
    }
    if (b.name != "h.1.mlp.fc.linear") continue;
    seen = true;
    EXPECT_EQ(b.layer, 1);
    EXPECT_EQ(b.phase, "forward");
    EXPECT_EQ(b.category, "activations");
    EXPECT_NE(b.scope.find("h.1.mlp.fc"), std::string::npos);
  }
  EXPECT_TRUE(seen);
  auto largest = largest_allocations(p, 3);
  ASSERT_EQ(largest.size(), 3u);
  EXPECT_GE(largest[0].bytes, largest[1].bytes);
}

// Runs for the power are in no other figure.
TEST(Profiler, PowerIsMeasuredBesides) {
  Recipe r = tiny_recipe();
  PhaseRunner runner(compile_phase(r, find_device("cpu", 1), BenchPhase::step), BenchPhase::step, 1);
  ProfilerOptions options;
  options.rates = rates;
  options.rule = {.warmup = 1, .min_samples = 2, .max_samples = 2};
  int runs = 0, asked = 0;
  options.before_run = [&] { ++runs; };
  Profile p = run_profiler(runner, options);
  EXPECT_FALSE(p.power_w.has_value());
  int plain = std::exchange(runs, 0);
  options.power = [&] { return EnergyReading{asked * 2.0, asked++ * 500.0, {}}; };
  p = run_profiler(runner, options);
  EXPECT_GT(runs, plain);
  EXPECT_DOUBLE_EQ(p.power_w.value(), 250);
  EXPECT_DOUBLE_EQ(p.joules_per_token().value(), 0.25 * p.step_median_ms() / double(p.tokens));
  EXPECT_EQ(p.step_ms.size(), 2u);
  EXPECT_EQ(p.throttled.size(), 2u);
  EXPECT_EQ(profile_result(p, "d")["power_w"], 250.0);
}

TEST(Profiler, StopsWhenItIsTold) {
  Recipe r = tiny_recipe();
  PhaseRunner runner(compile_phase(r, find_device("cpu", 1), BenchPhase::step), BenchPhase::step, 1);
  ProfilerOptions options;
  options.rates = rates;
  int runs = 0;
  options.before_run = [&] {
    if (++runs == 3) throw Error(Exit::interrupted, "stop");
  };
  EXPECT_THROW(run_profiler(runner, options), Error);
  EXPECT_EQ(runs, 3);
}

TEST(ProfileRates, AreParsedStrictly) {
  auto rates = parse_rates("bf16=9.9e14,bandwidth=4.8e12", "--rates");
  ASSERT_EQ(rates.size(), 2u);
  EXPECT_EQ(rates[0].name, "bf16");
  EXPECT_DOUBLE_EQ(rates[0].per_second, 9.9e14);
  EXPECT_TRUE(parse_rates("", "--rates").empty());
  for (const char* wrong : {"bf61=1e12", "bf16", "bf16=", "bf16=x", "bf16=1e12x", "bf16=-1", "bf16=0", "bf16=inf",
                            "bf16=nan", "bf16=1e12,", "=1"})
    EXPECT_THROW(parse_rates(wrong, "--rates"), Error) << wrong;
}

// Threads as ranks: stages with other axes inside, and two chunks on a rank.
TEST(Profiler, MeasuresStagesOfVirtualRanks) {
  Recipe r = tiny_recipe();
  r.model.layers = 4, r.batch = 1, r.grad_accumulation = 4;
  r.data_parallel = 4, r.mesh = {{Axis::pipeline, 2}, {Axis::data, 2}};
  r.pass_settings["schedule-pipeline"] = "interleaved:2";
  PhaseRunner runner(compile_phase(r, find_device("cpu", 4), BenchPhase::step), BenchPhase::step, 1);
  runner.run();
  const std::optional<PipelineTimes> t = runner.stage_times(3);
  ASSERT_TRUE(t);
  EXPECT_EQ(t->runs, 3);
  EXPECT_NEAR(t->predicted_ms() + t->other_ms + t->rest_ms, t->step_ms, 1e-6);
  ASSERT_EQ(t->stages.size(), 2u);
  double work = 0;
  for (const StageTimes& stage : t->stages) {
    EXPECT_NEAR(stage.compute_ms + stage.transfer_ms + stage.waiting_ms() + stage.rest_ms, stage.step_ms, 1e-6);
    work += stage.compute_ms / 2;
  }
  EXPECT_NEAR(work, t->bubble.ideal, 1e-6);
  EXPECT_EQ(t->stages[0].parts.size(), 4u);  // two chunks
  EXPECT_EQ(t->stages[1].parts.size(), 3u);  // the last one has both passes in one
  EXPECT_GT(t->planned_bubble, 0);
  PhaseRunner one(compile_phase(tiny_recipe(), find_device("cpu", 1), BenchPhase::step), BenchPhase::step, 1);
  EXPECT_FALSE(one.stage_times(3));
}

}  // namespace crest::test
