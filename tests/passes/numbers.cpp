// A pass may change how a step is computed, not its results.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "core/error.h"
#include "passes/evaluate.h"
#include "passes/tiny.h"
#include "program/text.h"
#include "program/verify.h"

using namespace crest;
using namespace crest::test;

namespace {

struct PassCase {
  std::string pass;
  std::function<void(Recipe&)> set;
};

std::vector<PassCase> pass_cases() {
  auto set = [](auto member, const char* value) { return [=](Recipe& r) { r.*member = value; }; };
  auto naive = [](const char* recompute) { return [=](Recipe& r) { r.attention = "naive", r.recompute = recompute; }; };
  auto dropout = [](const char* recompute) {
    return [=](Recipe& r) { r.model.dropout = 0.25, r.recompute = recompute; };
  };
  auto windows = [](Recipe& r) { r.attention = "naive", r.model.window = 2, see_all_in_first(r.model, 1); };
  return {
      {"vocabulary_padding", [](Recipe& r) { r.pad_vocab = 16; }},
      {"attention", set(&Recipe::attention, "naive")},
      {"attention", windows},
      {"decompose", set(&Recipe::fusion, "off")},
      {"loss_chunk", [](Recipe& r) { r.pass_settings["loss-chunk"] = "3"; }},
      {"loss_chunk", [](Recipe& r) { r.pass_settings["loss-chunk"] = "3", r.pad_vocab = 16, r.fusion = "off"; }},
      {"loss_chunk", [](Recipe& r) { r.pass_settings["loss-chunk"] = "1", r.model.tied = !r.model.tied; }},
      {"loss_chunk", [](Recipe& r) { r.pass_settings["loss-chunk"] = "4", r.recompute = "full"; }},
      {"groups", [](Recipe&) {}},
      {"recompute", set(&Recipe::recompute, "selective")},
      {"recompute", set(&Recipe::recompute, "activation")},
      {"recompute", set(&Recipe::recompute, "full")},
      {"swiglu", set(&Recipe::recompute, "none")},
      {"swiglu", set(&Recipe::recompute, "pointwise")},
      {"swiglu", set(&Recipe::recompute, "full")},
      {"epilogues", set(&Recipe::recompute, "none")},
      {"epilogues", set(&Recipe::recompute, "pointwise")},
      {"epilogues", set(&Recipe::recompute, "full")},
      {"epilogues", [](Recipe& r) { r.recompute = "pointwise", r.grad_accumulation = 2; }},
      {"fusion", set(&Recipe::fusion, "on")},
      {"fusion", naive("none")},
      {"fusion", naive("pointwise")},
      {"fusion", naive("selective")},
      {"fusion", naive("full")},
      {"fusion", windows},
      {"dropout", dropout("none")},
      {"dropout", dropout("pointwise")},
      {"dropout", dropout("full")},
      {"dropout", [](Recipe& r) { r.model.dropout = 0.25, r.recompute = "pointwise", r.grad_accumulation = 2; }},
      {"lanes", [](Recipe&) {}},
      {"prune", set(&Recipe::attention, "naive")},
      {"row_pitch", [](Recipe&) {}},
      {"row_pitch",
       [](Recipe& r) { r.pass_settings["loss-chunk"] = "3", r.fusion = "off", r.model.tied = !r.model.tied; }},
  };
}

Recipe numeric_recipe(bool llama, double dropout) {
  Recipe r = tiny_recipe(llama);
  r.model.layers = 2, r.model.vocab = 11, r.pad_vocab = 1, r.model.dropout = dropout, r.fusion = "on";
  return r;
}

Program built(const Recipe& r, ProgramKind kind, bool first = true, bool last = true) {
  Program p = forward_program(r, kind);
  run_passes(p, {r, kind, first, last, [](const Program&, const Instr&) { return "a kernel"; }, 16});
  return p;
}

}  // namespace

// The whole pipeline with a pass and without it: loss, every gradient, and after the update every
// weight and moment. 1e-5: fp32, sums of at most some hundred terms in another order.
TEST(PassNumbers, WithAndWithoutAPassAreEqual) {
  [[maybe_unused]] int number = 0;
  for (auto& pass_case : pass_cases()) {
    ++number;
    for (bool llama : {false, true})
      for (double dropout : {0.0, 0.25}) {
        if (pass_case.pass == "swiglu" && (!llama || dropout > 0)) continue;
#ifdef __SANITIZE_ADDRESS__  // each setting once: it takes minutes, and addresses do not depend on the other cases
        if (llama != (dropout > 0) || llama != (number % 2 == 0)) continue;
#endif
        for (auto kind : {ProgramKind::train, ProgramKind::update, ProgramKind::validation, ProgramKind::decode})
          for (auto kernels : {Kernels::reference, Kernels::fast}) {
            SCOPED_TRACE(::testing::Message() << pass_case.pass << (llama ? " llama" : " gpt2") << " dropout "
                                              << dropout << " " << name(kind) << " kernels " << int(kernels));
            Recipe r = numeric_recipe(llama, dropout);
            pass_case.set(r);
            Program with = built(r, kind);
            r.disabled_passes = {pass_case.pass};
            Program without = built(r, kind);
            if (kind == ProgramKind::train) {
              EXPECT_EQ(with.outputs.size(), with.params.size() + 1);
            }
            std::string where;
            double d = distance(evaluate(with, kernels), evaluate(without, kernels), &where);
            EXPECT_LE(d, 1e-5) << where;
          }
      }
  }
}

TEST(PassNumbers, EverySettingChangesTheProgramOfTraining) {
  for (auto& pass_case : pass_cases()) {
    // One rank does not communicate, and other passes leave nothing to prune.
    if (pass_case.pass == "lanes" || pass_case.pass == "prune") continue;
    Recipe r = numeric_recipe(pass_case.pass == "swiglu", 0);
    pass_case.set(r);
    Program with = built(r, ProgramKind::train);
    r.disabled_passes = {pass_case.pass};
    EXPECT_NE(print(with), print(built(r, ProgramKind::train))) << pass_case.pass;
  }
}

// Loss and every kept value are bit for bit the training step's.
TEST(PassNumbers, TheForwardHalfIsThatOfTheTrainingStep) {
  for (bool llama : {false, true})
    for (const char* precision : {"fp32", "bf16"})
      for (const char* fusion : {"on", "off"})
        for (const char* chunk : {"off", "3"})
          for (auto kernels : {Kernels::reference, Kernels::fast}) {
            SCOPED_TRACE(::testing::Message() << llama << " " << precision << " fusion " << fusion << " " << chunk);
            Recipe r = tiny_recipe(llama);
            r.model.dropout = 0.25, r.precision = precision, r.fusion = fusion, r.pass_settings["loss-chunk"] = chunk;
            auto half_of = [&](bool forward_only) {
              Program p = forward_program(r, ProgramKind::train);
              auto kernel = [](const Program&, const Instr&) { return "a kernel"; };
              run_passes(p, {r, ProgramKind::train, true, !forward_only, kernel, 1, forward_only});
              return p;
            };
            Program half = half_of(true), whole = half_of(false);
            for (ValueId v : half.outputs)
              if (half.at(v).role != Role::output) whole.outputs.push_back(whole.find(half.at(v).name));
            auto a = evaluate(half, kernels), b = evaluate(whole, kernels);
            ASSERT_GT(half.outputs.size(), 5u);
            for (ValueId v : half.outputs) EXPECT_EQ(a.at(half.at(v).name), b.at(half.at(v).name)) << half.at(v).name;
          }
}

// Two micro steps of batch 1 give the gradients of one micro step of batch 2.
TEST(PassNumbers, GradientsAccumulateIntoWhatTheyWere) {
  Recipe r = numeric_recipe(false, 0);
  r.grad_accumulation = 2;
  auto first = evaluate(built(r, ProgramKind::train, true, false), Kernels::reference);
  // The second micro step starts from invented sums: its addition must equal the first one's result
  // (same data).
  Program next = built(r, ProgramKind::train, false, true);
  auto second = evaluate(next, Kernels::reference);
  int compared = 0;
  for (ValueId out : next.outputs) {
    std::string sum = next.at(out).name, start = sum.substr(0, sum.size() - 4);
    ASSERT_TRUE(sum.ends_with(".sum")) << sum;
    Program only = next;  // the starting sums as evaluate() invents them
    only.code.clear(), only.outputs.clear();
    auto before = evaluate(only, Kernels::reference);
    double difference = 0, norm = 0;
    for (size_t i = 0; i < second[sum].size(); ++i) {
      double added = second[sum][i] - before[start][i];
      difference += std::pow(added - first[start][i], 2), norm += std::pow(second[sum][i], 2);
    }
    EXPECT_LE(std::sqrt(difference / norm), 1e-6) << sum;
    ++compared;
  }
  EXPECT_EQ(compared, int(next.params.size()) + 1);
}

TEST(PassNumbers, PaddingGetsNoGradient) {
  Recipe r = numeric_recipe(false, 0);
  r.pad_vocab = 16;
  for (std::string fusion : {"on", "off"}) {
    r.fusion = fusion;
    Program p = built(r, ProgramKind::train);
    for (auto& q : p.params)
      if (q.name == "wte.weight") q.shape[0] = 16;  // make evaluate() show the padding too; its weights become normal
    auto result = evaluate(p, Kernels::fast);
    auto& g = result["grad.wte.weight"];
    ASSERT_EQ(g.size(), size_t(16 * 8));
    for (size_t i = 11 * 8; i < g.size(); ++i) EXPECT_EQ(g[i], 0) << i;
  }
}

// --disable-pass: a valid Program, or an error about the missing part.
TEST(DisabledPass, GivesAVerifiedProgramOrANamedError) {
  for (auto& pass : pipeline())
    for (std::string precision : {"fp32", "bf16", "fp16"})
      for (std::string policy : {"pure", "autocast"})
        for (std::string fusion : {"on", "off"})
          for (auto kind : {ProgramKind::train, ProgramKind::update, ProgramKind::validation, ProgramKind::prefill,
                            ProgramKind::decode}) {
            Recipe r = tiny_recipe();
            r.precision = precision, r.policy = policy, r.fusion = fusion;
            r.attention = "naive", r.recompute = "selective", r.grad_accumulation = 2;
            r.disabled_passes = {pass.name};
            SCOPED_TRACE(std::string(pass.name) + " " + precision + " " + policy + " " + std::string(name(kind)));
            try {
              Program p = built(r, kind, false);
              verify(p, "all");
              EXPECT_EQ(print(parse_program(print(p), "text")), print(p));
            } catch (const Error& e) {
              // Only the need for gradients makes their pass indispensable.
              EXPECT_STREQ(pass.name, "autograd") << e.what();
              EXPECT_NE(std::string(e.what()).find("gradient"), std::string::npos) << e.what();
            }
          }
}

TEST(DisabledPass, AnUnknownNameIsAUsageErrorWithTheNearest) {
  Recipe r = tiny_recipe();
  r.disabled_passes = {"fusoin"};
  try {
    built(r, ProgramKind::train);
    FAIL() << "no error";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Exit::usage);
    EXPECT_NE(std::string(e.what()).find("'fusion'"), std::string::npos) << e.what();
  }
}
