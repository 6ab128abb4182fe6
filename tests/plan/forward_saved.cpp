// Phase forward-saved: the forward half of a training step, with the inputs of its backward half.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "bench/phase_runner.h"
#include "core/error.h"
#include "device/find.h"
#include "passes/fp8.h"
#include "passes/tiny.h"
#include "plan/plan_report.h"
#include "plan/search.h"
#include "plan/what_fits.h"
#include "program/op.h"
#include "run/executor.h"

using namespace crest;
using namespace crest::test;

namespace {

Device one_thread() { return find_device("cpu", 1); }

Recipe small_model(bool llama) {
  Recipe r = tiny_recipe(llama);
  r.model.layers = 2, r.model.width = 32, r.model.head_dim = 16, r.model.ff = 64, r.model.vocab = 300;
  r.model.context = 48, r.batch = 3, r.seq = 40, r.pad_vocab = 128, r.fusion = "on", r.model.dropout = 0.1;
  r.pass_settings["loss-chunk"] = "off";
  return r;
}

// Calls `check` with recipes of different saved values.
template <class Check>
void for_recipes(Check check) {
  for (bool llama : {false, true})
    for (const char* precision : {"fp32", "bf16", "fp16", "fp8"})
      for (const char* policy : {"pure", "autocast"})
        for (const char* recompute : {"none", "pointwise", "full"})
          for (const char* fusion : {"on", "off"})
            for (const char* chunk : {"off", "30"})
              for (int64_t steps : {1, 3}) {
                if (precision == std::string("fp16") && (llama || steps == 3)) continue;  // as bf16
                const bool pure = policy == std::string("pure"), fused = fusion == std::string("on");
                if (precision == std::string("fp8") && !(pure && fused && chunk == std::string("off"))) continue;
                Recipe r = small_model(llama);
                r.precision = precision, r.policy = policy, r.recompute = recompute, r.grad_accumulation = steps;
                r.fusion = fusion, r.attention = fusion == std::string("on") ? "flash" : "naive";
                r.pass_settings["loss-chunk"] = chunk;
                SCOPED_TRACE(::testing::Message()
                             << (llama ? "llama " : "gpt2 ") << precision << " " << policy << " recompute " << recompute
                             << " fusion " << fusion << " chunk " << chunk << " steps " << steps);
                check(r);
              }
}

// Names of values that the forward half makes or receives in the arena, and that the backward half
// reads. They must stay between the halves.
std::set<std::string> read_by_backward(const Program& p) {
  std::set<ValueId> made_backward;
  std::set<std::string> names;
  for (auto& instr : p.code) {
    if (instr.phase == Phase::forward) continue;
    for (ValueId v : instr.in) {
      if (v == no_value || made_backward.count(v)) continue;
      if (p.at(p.at(v).layout.storage).lifetime == Lifetime::micro_step) names.insert(p.at(v).name);
    }
    made_backward.insert(instr.out.begin(), instr.out.end());
  }
  return names;
}

std::set<std::string> outputs(const Program& p) {
  std::set<std::string> names;
  for (ValueId v : p.outputs)
    if (p.at(v).role != Role::output) names.insert(p.at(v).name);
  return names;
}

std::vector<std::string> forward_lines(const CompiledProgram& c) {
  std::vector<std::string> lines;
  for (size_t i = 0; i < c.program.code.size(); ++i) {
    const Instr& instr = c.program.code[i];
    if (instr.phase != Phase::forward) continue;
    std::string line = instr.op->name;
    line += std::string(" by ") + c.kernels[i]->name;
    for (ValueId v : instr.out) line += " %" + c.program.at(v).name;
    lines.push_back(line);
  }
  return lines;
}

int64_t activations(const MemoryPlan& m) {
  int64_t bytes = 0;
  for (auto& b : m.blocks) bytes += b.category == Category::activations ? b.bytes : 0;
  return bytes;
}

}  // namespace

TEST(ForwardSaved, KeepsExactlyWhatTheBackwardHalfReads) {
  for_recipes([](const Recipe& r) {
    CompiledSession train = compile_phase(r, one_thread(), BenchPhase::backward);
    CompiledSession saved = compile_phase(r, one_thread(), BenchPhase::forward_saved);
    ASSERT_EQ(saved.programs.size(), has_start(r) ? 2u : 1u);  // weights in 8 bits without a forward half
    const CompiledProgram &whole = train.programs[0], &half = saved.programs[0];
    EXPECT_EQ(outputs(half.program), read_by_backward(whole.program));
    EXPECT_EQ(forward_lines(half), forward_lines(whole));
    EXPECT_EQ(forward_lines(half).size(), half.program.code.size());
    for (auto& value : half.program.values) EXPECT_NE(value.role, Role::gradient) << value.name;
    for (auto& b : saved.persistent)
      if (b.name != "scalars" && !b.name.starts_with("fp8.")) {  // scales of the forward half
        EXPECT_NE(b.category, Category::optimizer_state) << b.name;
      }
  });
}

// Held equals planned, and all kept values are alive after the last instruction.
TEST(ForwardSaved, HoldsWhatWasPlanned) {
  for_recipes([](const Recipe& r) {
    CompiledSession s = compile_phase(r, one_thread(), BenchPhase::forward_saved);
    Executor e(s);
    EXPECT_EQ(e.held_bytes(), s.planned_bytes());
    EXPECT_EQ(total(s.by_category()), s.planned_bytes());
    const CompiledProgram& c = s.programs[0];
    int end = int(c.program.code.size()) - 1;
    for (auto& b : c.memory.blocks)
      if (b.category == Category::activations) {
        EXPECT_EQ(b.last, end) << b.name;
      }
    EXPECT_EQ(s.kept_bytes(), activations(c.memory));
    EXPECT_GT(s.kept_bytes(), 0);
    std::set<int> blocks;
    for (ValueId v : c.program.outputs)
      if (int b = c.memory.block_of_value[size_t(v)]; b >= 0 && c.program.at(v).role != Role::output) blocks.insert(b);
    int64_t kept = 0;
    for (int b : blocks) kept += c.memory.blocks[size_t(b)].bytes;
    EXPECT_EQ(kept, s.kept_bytes());
  });
}

// Without a chunked loss, a training step has a moment between its halves. It then holds exactly
// the values kept by the forward half. The loss (one block) is a result and is not kept.
TEST(ForwardSaved, SavesAsManyBytesAsTheTrainingStep) {
  for_recipes([](const Recipe& r) {
    if (r.pass_settings.at("loss-chunk") != "off") return;
    CompiledSession train = compile_phase(r, one_thread(), BenchPhase::backward);
    CompiledSession saved = compile_phase(r, one_thread(), BenchPhase::forward_saved);
    int64_t loss = r.grad_accumulation == 1 ? 256 : 0;  // else it outlives the micro step
    EXPECT_EQ(saved.kept_bytes() + loss, train.kept_bytes());
  });
}

// A later backward pass needs the logits of all tokens: chunks save no memory here.
TEST(ForwardSaved, ChunkedLossKeepsAllLogits) {
  Recipe r = small_model(false);
  r.model.vocab = 5000;
  int64_t whole = compile_phase(r, one_thread(), BenchPhase::forward_saved).kept_bytes();
  r.pass_settings["loss-chunk"] = "30";
  int64_t chunked = compile_phase(r, one_thread(), BenchPhase::forward_saved).kept_bytes();
  EXPECT_NEAR(double(chunked), double(whole), 0.01 * double(whole));
  EXPECT_LT(compile_phase(r, one_thread(), BenchPhase::backward).transient_bytes, chunked);
}

// A run is one call of one Program, also with several ranks and micro steps.
TEST(ForwardSaved, Runs) {
  for (int ranks : {1, 2})
    for (int64_t steps : {1, 2}) {
      Recipe r = small_model(false);
      r.data_parallel = ranks, r.grad_accumulation = steps;
      CompiledSession s = compile_phase(r, find_device("cpu", 2), BenchPhase::forward_saved);
      EXPECT_EQ(phase_calls(s, BenchPhase::forward_saved), std::vector<int>{0});
      EXPECT_EQ(phase_tokens(r, BenchPhase::forward_saved), r.batch * r.seq * ranks);
      double forward = phase_flops(s, BenchPhase::forward_saved, FlopsConvention::executed);
      CompiledSession both = compile_phase(r, find_device("cpu", 2), BenchPhase::backward);
      EXPECT_LT(forward * double(steps), phase_flops(both, BenchPhase::backward, FlopsConvention::executed) / 2);
      PhaseRunner runner(s, BenchPhase::forward_saved, 7);
      EXPECT_GT(runner.run(), 0);
      EXPECT_GT(runner.run_in_sequence(), 0);
      runner.settle();
      EXPECT_EQ(runner.held_bytes(), s.planned_bytes());
    }
}

TEST(ForwardSaved, LargestBatchFits) {
  Recipe r = small_model(false);
  SessionUse use = phase_use(BenchPhase::forward_saved);
  CompiledSession s = compile_phase(r, one_thread(), BenchPhase::forward_saved);
  int64_t limit = 5 * s.planned_bytes();
  r.batch = largest_batch(s, use, limit);
  EXPECT_GT(r.batch, s.recipe.batch);
  EXPECT_LE(compile_phase(r, one_thread(), BenchPhase::forward_saved).planned_bytes(), limit);
  ++r.batch;
  CompiledSession over = compile_phase(r, one_thread(), BenchPhase::forward_saved);
  EXPECT_GT(over.planned_bytes(), limit);
  try {
    check_fits(over, limit);
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Exit::does_not_fit);
  }
}

TEST(ForwardSaved, PlanReportsAForwardPass) {
  Recipe r = small_model(false);
  r.grad_accumulation = 3;
  PlanReport report =
      plan_report(resolve(r, one_thread()), one_thread(), phase_use(BenchPhase::forward_saved), 1 << 30);
  EXPECT_EQ(report.tokens(), r.batch * r.seq);
  EXPECT_DOUBLE_EQ(report.model_flops(), palm_flops(r, BenchPhase::forward_saved));
  EXPECT_DOUBLE_EQ(report.executed_flops,
                   phase_flops(report.session, BenchPhase::forward_saved, FlopsConvention::executed));
  EXPECT_EQ(report.session.programs[0].spec.name, "train.forward");
}
