// The results of passes swiglu and epilogues in a training step, by device and recipe: SwiGLU, the
// bias gradients and the repeated norms.
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <string_view>

#include "device/data_sheet.h"
#include "device/find.h"
#include "plan/compile.h"
#include "program/op.h"

namespace crest::test {

namespace {

// Bias gradients: alone, or by the instruction with their summands.
struct Places {
  int alone = 0, product = 0, norm = 0;
  bool operator==(const Places&) const = default;
};
std::ostream& operator<<(std::ostream& out, const Places& p) {
  return out << p.alone << " alone, " << p.product << " product, " << p.norm << " norm";
}

void count(const Program& p, Places& n) {
  for (const Instr& i : p.code) {
    std::string_view op = i.op->name;
    if (i.body) count(*i.body, n);
    n.alone += op == "bias_grad";
    n.product += op == "linear_dx_gelu_grad";
    n.norm += op == "norm_grad" && i.attrs.integer("bias", 0);
  }
}

using Change = void (*)(Recipe&);

// A training step of two layers of gpt2-124M in bf16.
Program step(const Device& device, Change change = nullptr, const char* program = "train") {
  Recipe r;
  r.model = load_model_config("gpt2-124M");
  r.model.layers = 2, r.model.vocab = 300;
  r.batch = 4, r.precision = "bf16";
  if (change) change(r);
  SessionUse use;
  use.train = true;
  CompiledSession s = compile(r, device, session_programs(r, use));
  return s.programs[size_t(s.find(program))].program;
}
Places places(const Device& device, Change change = nullptr, const char* program = "train") {
  Places n;
  count(step(device, change, program), n);
  return n;
}

Device sheet(const char* name) { return described_device(find_data_sheet(name)); }

}  // namespace

TEST(BiasGradients, AreMadeByTheKernelOfWhatTheySumWhereItCan) {
  Device h200 = sheet("h200");
  EXPECT_EQ(places(h200), (Places{2, 2, 4}));  // alone: the one of qkv
  EXPECT_EQ(places(h200, [](Recipe& r) { r.precision = "fp16"; }), (Places{2, 2, 4}));
  EXPECT_EQ(places(h200, [](Recipe& r) { r.recompute = "full"; }), (Places{2, 2, 4}));
  EXPECT_EQ(places(h200, [](Recipe& r) { r.grad_dtype = "bf16"; }), (Places{2, 2, 4}));
  auto micro_steps = [](Recipe& r) { r.grad_accumulation = 2; };
  for (const char* program : {"train.first", "train.next"})
    EXPECT_EQ(places(h200, micro_steps, program), (Places{2, 2, 4})) << program;
  // Kernels for compute capability 9.0 take half precision.
  EXPECT_EQ(places(h200, [](Recipe& r) { r.precision = "fp32"; }), (Places{4, 0, 4}));
  EXPECT_EQ(places(sheet("a100")), (Places{4, 0, 4}));
}

TEST(BiasGradients, StayWhereAnotherKernelWouldRun) {
  Device h200 = sheet("h200");
  auto odd = [](Recipe& r) { r.model.width = 774; };  // rows of no whole vectors; the product wants multiples of 8
  EXPECT_EQ(places(h200, odd), (Places{8, 0, 0}));
  // With dropout, the norm's gradient takes the projection's bias gradient only if the norm drops
  // too.
  EXPECT_EQ(places(h200, [](Recipe& r) { r.model.dropout = 0.1; }), (Places{2, 2, 4}));
  EXPECT_EQ(places(h200, [](Recipe& r) { r.model.dropout = 0.1, r.disabled_passes = {"dropout"}; }), (Places{6, 2, 0}));
  EXPECT_EQ(places(h200, [](Recipe& r) { r.fusion = "off"; }), (Places{8, 0, 0}));
  EXPECT_EQ(places(h200, [](Recipe& r) { r.disabled_passes = {"epilogues"}; }), (Places{8, 0, 0}));
  EXPECT_EQ(places(find_device("cpu", 1)), (Places{8, 0, 0}));
}

// A norm repeated for its weight gradient reads its rows in the gradient's kernel.
TEST(RepeatedNorms, AreMadeByTheKernelOfTheirGradient) {
  auto norms = [](const Program& p) {
    std::pair<int, int> n;  // repeated alone, by the gradient
    for (const Instr& i : p.code) {
      std::string_view op = i.op->name;
      n.first += op == "norm" && i.phase == Phase::recompute;
      n.second += op == "norm_grad" && i.attrs.integer("keep", 0);
    }
    return n;
  };
  Device h200 = sheet("h200");
  EXPECT_EQ(norms(step(h200)), std::pair(0, 4));
  EXPECT_EQ(norms(step(h200, [](Recipe& r) { r.model.dropout = 0.1; })), std::pair(0, 4));
  EXPECT_EQ(norms(step(h200, [](Recipe& r) { r.recompute = "none"; })), std::pair(0, 0));
  EXPECT_EQ(norms(step(h200, [](Recipe& r) { r.recompute = "full"; })), std::pair(2, 0));
  EXPECT_EQ(norms(step(h200, [](Recipe& r) { r.disabled_passes = {"epilogues"}; })), std::pair(4, 0));
  EXPECT_EQ(norms(step(find_device("cpu", 1))), std::pair(4, 0));
}

// The kernel stages rows in shared memory. It takes both the residual sum and the repeated norm as
// long as their rows fit there, and the residual sum beyond.
TEST(RepeatedNorms, StayAloneWhereTheRowsDoNotFitIntoSharedMemory) {
  const Device h100 = sheet("h100");
  for (const char* model : {"gpt2-124M", "llama-1B"})
    for (int64_t width = 1024; width <= 20480; width += 1024) {
      SCOPED_TRACE(testing::Message() << model << " " << width);
      Recipe r;
      r.model = load_model_config(model);
      r.model.layers = 1, r.model.vocab = 300, r.model.width = width, r.model.ff = 2 * width;
      r.model.head_dim = 128, r.model.heads = r.model.kv_heads = width / 128;
      r.batch = 1, r.seq = 128, r.precision = "bf16";
      SessionUse use;
      use.train = true;
      const CompiledSession s = compile(r, h100, session_programs(r, use));
      int keeps = 0, sums = 0, alone = 0;
      for (const Instr& i : s.programs[size_t(s.find("train"))].program.code) {
        keeps += i.op->name == std::string_view("norm_grad") && i.attrs.integer("keep", 0);
        sums += i.op->name == std::string_view("add");
        alone += i.op->name == std::string_view("norm") && i.phase == Phase::recompute;
      }
      // Two products read the norm in front of SwiGLU, so it stays alone.
      const int joined = width > 14336 ? 0 : model == std::string_view("llama-1B") ? 1 : 2;
      EXPECT_EQ(keeps, joined);
      EXPECT_EQ(alone, 2 - joined);
      EXPECT_EQ(sums, 0);
    }
}

// Dropout of the residual stream, forward and backward, joins the embeddings and two sums in each
// layer.
TEST(Dropout, IsPartOfTheKernelsThatHaveItsValues) {
  auto apart = [](const Device& device, const std::function<void(Recipe&)>& change, const char* model,
                  const char* program = "train") {
    Recipe r;
    r.model = load_model_config(model), r.model.layers = 2, r.model.vocab = 300, r.model.dropout = 0.1;
    r.batch = 3, r.seq = 65, r.precision = "bf16";
    change(r);
    SessionUse use;
    use.train = true;
    CompiledSession s = compile(r, device, session_programs(r, use));
    int64_t n = 0;
    for (const Instr& i : s.programs[size_t(s.find(program))].program.code)
      n += std::string_view(i.op->name) == "dropout";
    return n;
  };
  const int64_t all = 2 * (1 + 2 * 2);
  Device h200 = sheet("h200"), cpu = find_device("cpu", 1);
  for (const char* model : {"gpt2-124M", "cs336-small"}) {
    SCOPED_TRACE(model);
    for (std::string precision : {"fp32", "tf32", "bf16", "fp16", "fp8"})
      for (std::string recompute : {"none", "pointwise", "selective", "full"}) {
        SCOPED_TRACE(precision + " " + recompute);
        auto change = [&](Recipe& r) { r.precision = precision, r.recompute = recompute; };
        EXPECT_EQ(apart(h200, change, model), 0);
        if (precision == "tf32") continue;  // CPUs have none
        EXPECT_EQ(apart(cpu, change, model), 0);
      }
    auto micro_steps = [](Recipe& r) { r.grad_accumulation = 2; };
    for (const char* program : {"train.first", "train.next"})
      EXPECT_EQ(apart(h200, micro_steps, model, program), 0) << program;
    auto documents = [](Recipe& r) { r.pass_settings["packing"] = "documents"; };
    EXPECT_EQ(apart(h200, documents, model), 0);
    EXPECT_EQ(apart(
                  h200, [](Recipe& r) { r.data_parallel = 2; }, model),
              0);
    EXPECT_EQ(apart(
                  h200, [](Recipe& r) { r.model.width = 774; }, model),
              0)
        << "rows of no whole vectors";
    EXPECT_EQ(apart(
                  h200, [](Recipe& r) { r.fusion = "off"; }, model),
              all);
    EXPECT_EQ(apart(
                  h200, [](Recipe& r) { r.disabled_passes = {"dropout"}; }, model),
              all);
  }
}

// If a kernel supports it, SwiGLU becomes part of the matmuls next to it, and no separate
// instruction remains.
TEST(Swiglu, IsPartOfItsMatmulsWhereAKernelCan) {
  auto left = [](const Device& device, Change change = nullptr, const char* program = "train") {
    Recipe r;
    r.model = load_model_config("cs336-small"), r.model.layers = 2, r.model.vocab = 300;
    r.batch = 4, r.precision = "bf16";
    if (change) change(r);
    SessionUse use;
    use.train = true;
    CompiledSession s = compile(r, device, session_programs(r, use));
    std::map<std::string, int> n;
    std::function<void(const Program&)> add = [&](const Program& p) {
      for (const Instr& i : p.code) {
        const std::string op = i.op->name;
        if (i.body) add(*i.body);
        if (op.find("silu") != op.npos || op.find("swiglu") != op.npos || op == "linear_dx_sum" || op == "mul") ++n[op];
      }
    };
    add(s.programs[size_t(s.find(program))].program);
    return n;
  };
  using Counts = std::map<std::string, int>;
  const Counts joined = {{"linear_dx_sum", 2}, {"linear_dx_swiglu_grad", 2}, {"linear_swiglu", 2}};
  Device h200 = sheet("h200");
  EXPECT_EQ(left(h200), joined);
  EXPECT_EQ(left(h200, [](Recipe& r) { r.recompute = "none"; }), joined);
  EXPECT_EQ(left(h200, [](Recipe& r) { r.recompute = "activation"; }), joined);
  EXPECT_EQ(left(h200, [](Recipe& r) { r.recompute = "selective"; }), joined);
  EXPECT_EQ(left(h200, [](Recipe& r) { r.precision = "fp32"; }).count("linear_swiglu"), 0u);
  EXPECT_EQ(left(h200, [](Recipe& r) { r.fusion = "off"; }).count("linear_swiglu"), 0u);
  EXPECT_EQ(left(h200, [](Recipe& r) { r.disabled_passes = {"swiglu"}; }).count("linear_swiglu"), 0u);
  EXPECT_EQ(left(h200, [](Recipe& r) { r.precision = "fp8"; }).count("linear_swiglu"), 0u);
  EXPECT_EQ(left(sheet("a100")).count("linear_swiglu"), 0u);
  EXPECT_EQ(left(find_device("cpu", 1)).count("linear_swiglu"), 0u);
}

}  // namespace crest::test
