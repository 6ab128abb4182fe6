// Planning attention by cuDNN without a GPU: what is refused and why, and how much workspace is reserved.
#include <gtest/gtest.h>

#include "backend/backend.h"
#include "plan/data_sheet.h"
#include "program/builder.h"

namespace crest {
namespace {

Device h200() { return described_device(find_data_sheet("h200")); }

struct Problem {
  int64_t batch = 64, tokens = 1024, heads = 12, kv_heads = 12, head_dim = 64;
  DType dtype = DType::bf16;
  double p = 0;
};

// Asks the cuDNN kernel of `op` about a Program of an attention and its gradient.
template <class Ask>
auto ask(const char* op, const Problem& x, const Device& device, Ask answer) {
  Program program;
  Builder b(program);
  b.origin = Origin("test");
  Attrs attrs = Attrs().set("heads", x.heads).set("kv_heads", x.kv_heads).set("scale", 0.125).set("causal", 1);
  int64_t out = x.heads * x.head_dim, width = out + 2 * x.kv_heads * x.head_dim;
  auto input = [&](const char* name, DType t, const Shape& s) {
    return b.declare(name, t, s, Role::input, Lifetime::micro);
  };
  ValueId qkv = input("qkv", x.dtype, {x.batch, x.tokens, width}), scalars = input("scalars", DType::u8, {64});
  ValueId dout = input("dout", x.dtype, {x.batch, x.tokens, out});
  attrs.set("p", x.p).set("rng_id", 1);
  auto saved = b.emit("attention", {qkv, scalars}, attrs);
  b.emit("attention_grad", {dout, qkv, saved[0], saved[1], scalars}, attrs);
  for (const Kernel& k : kernels_of("cuda"))
    if (std::string(k.name) == std::string("cuda.") + op + ".cudnn")
      for (const Instr& i : program.code)
        if (i.op->name == std::string(op)) return answer(k, KernelQuery{program, i, device});
  throw std::runtime_error("no cuDNN kernel");
}

std::string reject(const char* op, const Problem& x, const Device& device = h200()) {
  return ask(op, x, device, [](const Kernel& k, const KernelQuery& q) { return k.reject(q); });
}
int64_t workspace(const char* op, const Problem& x, const Device& device = h200()) {
  return ask(op, x, device, [](const Kernel& k, const KernelQuery& q) { return int64_t(k.workspace(q)); });
}

TEST(Cudnn, TakesHalfPrecisionWithoutDropout) {
  for (const char* op : {"attention", "attention_grad"}) {
    EXPECT_EQ(reject(op, {}), "");
    EXPECT_EQ(reject(op, {.kv_heads = 4, .head_dim = 128, .dtype = DType::f16}), "");
    EXPECT_NE(reject(op, {.dtype = DType::f32}).find("f32"), std::string::npos);
    EXPECT_NE(reject(op, {.head_dim = 60}).find("head_dim"), std::string::npos);
    EXPECT_NE(reject(op, {.head_dim = 256}).find("head_dim"), std::string::npos);
    EXPECT_NE(reject(op, {.p = 0.1}).find("dropout"), std::string::npos);
    Device device = h200();
    device.cudnn = false;
    EXPECT_NE(reject(op, {}, device).find("not found"), std::string::npos);
  }
  EXPECT_EQ(reject("attention", {.tokens = 1}), "");
  EXPECT_NE(reject("attention_grad", {.tokens = 1}), "");
}

TEST(Cudnn, DeterministicGradientsOfLongSequencesGoToOtherKernels) {
  Device device = h200();
  device.deterministic = true;
  EXPECT_EQ(reject("attention_grad", {}, device), "");
  EXPECT_NE(reject("attention_grad", {.batch = 4, .tokens = 16384}, device).find("24.00 GiB"), std::string::npos);
  EXPECT_EQ(reject("attention", {.batch = 4, .tokens = 16384}, device), "");
}

// Sizes that cuDNN 9.19 states for its plans on an H200.
TEST(Cudnn, ReservesWhatTheLibraryAsksFor) {
  Device deterministic = h200();
  deterministic.deterministic = true;
  EXPECT_EQ(workspace("attention", {}), 256);
  EXPECT_EQ(workspace("attention_grad", {}), 204472576);
  EXPECT_EQ(workspace("attention_grad", {}, deterministic), 1613758720);
  Problem grouped = {.batch = 4, .tokens = 1000, .heads = 16, .kv_heads = 4, .head_dim = 128};
  EXPECT_GE(workspace("attention_grad", grouped), 65792256);
  EXPECT_LE(workspace("attention_grad", grouped), 67800000);
}

}  // namespace
}  // namespace crest
