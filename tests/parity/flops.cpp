// FLOPs of Crest's instructions beside the count of PyTorch's FlopCounterMode for the same model
// (flops_torch.py).
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "bench/phase_runner.h"
#include "device.h"
#include "program/op.h"

namespace crest::test {

namespace {

struct Flops {
  double products = 0, attention = 0, rest = 0;
};

// Removes known differences in counting, and nothing else:
// - PyTorch counts the product of a linear layer. Crest adds the bias (one addition an output) and,
//   where the kernel applies it, GELU (nine operations an output).
// - PyTorch counts causal attention as if every token saw all T tokens. Crest counts the
//   T (T + 1) / 2 computed pairs.
Flops counted(const CompiledSession& session, BenchPhase phase) {
  Flops sum;
  for (int call : phase_calls(session, phase)) {
    const Program& p = session.programs[size_t(call)].program;
    for (auto& i : p.code) {
      double flops = i.op->cost(p, i).flops;
      if (i.op->op_class == OpClass::attention) {
        double tokens = double(p.at(i.out[0]).shape[1]);
        sum.attention += flops * 2 * tokens / (tokens + 1);
      } else if (i.op->op_class == OpClass::contraction) {
        std::string op = i.op->name;
        double outputs = double(p.at(i.out[0]).numel()), extra = 0;
        if ((op == "linear" || op == "linear_gelu") && i.in.size() > 2 && i.in[2] != no_value) extra += outputs;
        if (op == "linear_gelu") extra += 9 * outputs;
        sum.products += flops - extra;
        sum.rest += extra;
      } else {
        sum.rest += flops;
      }
    }
  }
  return sum;
}

Recipe flops_recipe(const nlohmann::json& m) {
  Recipe r;
  r.model = load_model_config("nano");
  r.model.layers = m["layers"], r.model.heads = r.model.kv_heads = m["heads"], r.model.width = m["width"];
  r.model.head_dim = r.model.width / r.model.heads, r.model.ff = 4 * r.model.width;
  r.model.vocab = m["vocab"], r.model.context = m["seq"];
  r.batch = m["batch"], r.seq = m["seq"];
  r.attention = m["attention"], r.precision = "fp32", r.pad_vocab = 1;
  return r;
}

}  // namespace

TEST(Flops, AreThoseThatPyTorchCounts) {
  std::ifstream file(std::string(CREST_TEST_DIR) + "/parity/fixtures/flops.json");
  nlohmann::json fixture = nlohmann::json::parse(file);
  ASSERT_EQ(fixture["models"].size(), 6u);
  for (auto& m : fixture["models"])
    for (const char* fusion : {"on", "off"})
      for (BenchPhase phase : {BenchPhase::forward, BenchPhase::backward}) {
        Recipe r = flops_recipe(m);
        r.fusion = fusion;
        std::string key = name(phase);
        SCOPED_TRACE(m["name"].get<std::string>() + " " + r.attention + " fusion " + fusion + " " + key);
        CompiledSession session = compile_phase(r, test_device(1), phase, {.verify = false});
        Flops flops = counted(session, phase);
        double expected = m[key], attention = m[key + "_attention"];
        EXPECT_DOUBLE_EQ(flops.attention, attention);
        EXPECT_DOUBLE_EQ(flops.products, expected - attention);
        // Nothing is forgotten: with the parts left out by PyTorch the sum equals `executed`.
        double executed = phase_flops(session, phase, FlopsConvention::executed);
        EXPECT_LE(executed, (flops.products + flops.attention + flops.rest) * (1 + 1e-12));
        EXPECT_GT(flops.rest, 0);
      }
}

// Recompute repeats work: the same model counts more, by the forward pass of its layers.
TEST(Flops, RecomputeIsCounted) {
  Recipe r = flops_recipe(
      {{"layers", 2}, {"heads", 2}, {"width", 32}, {"vocab", 101}, {"batch", 3}, {"seq", 17}, {"attention", "naive"}});
  double none = counted(compile_phase(r, test_device(1), BenchPhase::backward), BenchPhase::backward).products;
  r.recompute = "full";
  double full = counted(compile_phase(r, test_device(1), BenchPhase::backward), BenchPhase::backward).products;
  double tokens = 3 * 17, layer = 2 * tokens * 12 * 32 * 32 + 4 * tokens * 17 * 32, head = 2 * tokens * 101 * 32;
  EXPECT_DOUBLE_EQ(none, 3 * (2 * layer + head));
  EXPECT_GT(full, none + layer);
  EXPECT_LE(full, none + 2 * layer);
}

}  // namespace crest::test
