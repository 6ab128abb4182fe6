// Every machine plans for every class of processors: the kernels of a class, and plans determined
// by the class alone.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "backend/cpu/gemm.h"
#include "backend/runtime.h"
#include "core/error.h"
#include "device/find.h"
#include "passes/tiny.h"
#include "plan/compile.h"
#include "program/op.h"

using namespace crest;
using namespace crest::test;

namespace {

class Classes : public testing::TestWithParam<Isa> {};

std::string class_name(const testing::TestParamInfo<Isa>& info) { return std::string(name(info.param)); }

SessionUse all_programs() {
  SessionUse use;
  use.train = use.update = use.validation = use.sampling = true;
  use.prefill = 3;
  return use;
}

Recipe recipe_for(const char* precision, const char* attention) {
  Recipe r;
  r.model = load_model_config("nano");
  r.precision = precision, r.attention = attention, r.batch = 4, r.seq = 200;
  return r;
}

CompiledSession planned(const Recipe& r, Isa isa, int threads = 2) {
  return compile(r, cpu_device(isa, threads), session_programs(r, all_programs()));
}

std::set<std::string> kernels_of_op(const CompiledSession& s, const char* program, const std::string& op) {
  const CompiledProgram& c = s.programs[size_t(s.find(program))];
  std::set<std::string> names;
  for (size_t i = 0; i < c.kernels.size(); ++i)
    if (c.program.code[i].op->name == op) names.insert(c.kernels[i]->name);
  return names;
}

using Names = std::set<std::string>;

}  // namespace

TEST_P(Classes, RunTheKernelsThatTheyAreFor) {
  Isa isa = GetParam();
  bool amx = isa == Isa::amx, dots = isa == Isa::avx512_bf16;
  CompiledSession s = planned(recipe_for("bf16", "flash"), isa);
  for (const char* op : {"linear", "linear_dx", "linear_dw"}) {
    std::string product = std::string("cpu.") + op + (amx ? ".amx" : dots ? ".onednn" : ".packed");
    EXPECT_EQ(kernels_of_op(s, "train", op), Names{product});
  }
  EXPECT_EQ(kernels_of_op(s, "train", "attention"), Names{amx ? "cpu.attention.amx" : "cpu.attention.flash"});
  s = planned(recipe_for("fp32", "flash"), isa);
  EXPECT_EQ(kernels_of_op(s, "train", "linear_dx"), Names{"cpu.linear_dx.onednn"});
  EXPECT_EQ(kernels_of_op(s, "train", "attention"), Names{"cpu.attention.flash"});
}

// Decoding reads bytes. For a chunk of a prompt and for a batch they become floats of the class'
// own dtype.
TEST_P(Classes, ReadInt8WeightsAsTheyAreWhereRowsAreFew) {
  for (const char* precision : {"fp32", "bf16", "fp16"}) {
    Recipe r = recipe_for(precision, "flash");
    r.pass_settings["weights"] = "int8";
    SessionUse use;
    use.validation = use.sampling = true;
    CompiledSession s = compile(r, cpu_device(GetParam(), 2), session_programs(r, use));
    EXPECT_EQ(kernels_of_op(s, "decode", "linear_int8"), Names{"cpu.linear_int8.few_rows"});
    EXPECT_EQ(kernels_of_op(s, "decode", "dequantize"), Names{});
    EXPECT_EQ(kernels_of_op(s, "decode", "linear"), Names{});
    EXPECT_EQ(kernels_of_op(s, "validation", "linear_int8"), Names{});
    for (const char* program : {"prefill", "validation"})
      EXPECT_EQ(kernels_of_op(s, program, "dequantize"), Names{"cpu.dequantize.simd"}) << program;
  }
}

TEST_P(Classes, DefaultToBf16WhereProcessorsMultiplyIt) {
  Recipe r = recipe_for("auto", "flash");
  EXPECT_EQ(planned(r, GetParam()).recipe.precision, GetParam() >= Isa::avx512_bf16 ? "bf16" : "fp32");
}

// A class changes workspaces, and no other memory.
TEST_P(Classes, HoldTheSameTensors) {
  for (const char* precision : {"fp32", "bf16", "fp16"})
    for (const char* attention : {"flash", "naive"}) {
      CompiledSession s = planned(recipe_for(precision, attention), GetParam());
      CompiledSession other = planned(recipe_for(precision, attention), Isa::generic);
      EXPECT_EQ(s.persistent_bytes, other.persistent_bytes);
      for (Category c : {Category::weights, Category::gradients, Category::optimizer_state, Category::kv_cache})
        EXPECT_EQ(s.by_category()[size_t(c)], other.by_category()[size_t(c)]) << precision << " " << name(c);
      EXPECT_EQ(total(s.by_category()), s.planned_bytes());
    }
}

TEST_P(Classes, PlanForAnyNumberOfThreads) {
  for (int threads : {1, 3, 16, 64}) {
    CompiledSession s = planned(recipe_for("bf16", "flash"), GetParam(), threads);
    EXPECT_EQ(s.device.threads, threads);
    EXPECT_GE(s.planned_bytes(), planned(recipe_for("bf16", "flash"), GetParam(), 1).planned_bytes()) << threads;
  }
}

// A process runs one class: a plan for another one is refused before anything is allocated.
TEST_P(Classes, RunOnlyWhereTheyAre) {
  const Device device = cpu_device(GetParam(), 1);
  if (GetParam() == active_isa() && active_isa() <= best_isa()) {
    EXPECT_NE(make_runtime(device, nullptr), nullptr);
    return;
  }
  try {
    make_runtime(device, nullptr);
    FAIL() << "it runs";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Exit::no_device);
    EXPECT_NE(std::string(e.what()).find(name(GetParam())), std::string::npos) << e.what();
    EXPECT_NE(std::string(e.what()).find("CREST_ISA"), std::string::npos) << e.what();
  }
}

INSTANTIATE_TEST_SUITE_P(Isa, Classes, testing::ValuesIn(all_isas), class_name);

TEST(ClassNames, AreReadAsTheyAreWritten) {
  for (Isa isa : all_isas) EXPECT_EQ(isa_named(name(isa)), isa);
  for (const char* wrong : {"", "AMX", "avx", "avx512_bf16 ", "none"}) EXPECT_FALSE(isa_named(wrong)) << wrong;
}

// A machine without oneDNN's bf16 matmuls plans with assumptions about them. A machine with them
// checks the assumptions.
TEST(EstimatedWorkspace, CoversWhatTheLibraryTakes) {
  if (active_isa() < Isa::avx512_bf16 || best_isa() < Isa::avx512_bf16)
    GTEST_SKIP() << "oneDNN has no products of bf16 on " << name(active_isa());
  for (int threads : {1, 2, 16})
    for (auto [m, n, k] : {std::tuple{3, 5, 7},
                           {65, 129, 33},
                           {512, 384, 128},
                           {1024, 2304, 768},
                           {768, 3072, 1024},
                           {256, 768, 50304},
                           {50304, 768, 256}})
      for (int orientation = 0; orientation < 3; ++orientation)
        for (DType c : {DType::f32, DType::bf16}) {
          GemmShape s;
          s.m = m, s.n = n, s.k = k, s.ab = DType::bf16, s.c = c, s.threads = threads;
          s.a_transposed = orientation == 2, s.b_transposed = orientation == 0;
          s.lda = s.a_transposed ? m : k, s.ldb = s.b_transposed ? k : n, s.ldc = n;
          SCOPED_TRACE(testing::Message() << m << " x " << n << " x " << k << " orientation " << orientation << " c "
                                          << name(c) << " threads " << threads);
          FoundGemm found = find_gemm(s);
          ASSERT_EQ(found.refused, "");
          auto real = int64_t(found.gemm->workspace()), estimated = int64_t(estimated_workspace(s, active_isa()));
          EXPECT_GE(estimated, real);
          EXPECT_LE(estimated, real + threads * (384 << 10));
        }
}
