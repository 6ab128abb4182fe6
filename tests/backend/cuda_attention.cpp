// Planning attention for an absent GPU, by cuDNN and by the kernels for compute capability 9.0: the
// accepting kernel, the others' reasons to refuse, and the reserved workspace.
#include <gtest/gtest.h>

#include "backend/backend.h"
#include "device/data_sheet.h"
#include "device/kernels.h"
#include "program/builder.h"

namespace crest {
namespace {

Device h200() { return described_device(find_data_sheet("h200")); }

struct Problem {
  int64_t batch = 64, tokens = 1024, heads = 12, kv_heads = 12, head_dim = 64;
  DType dtype = DType::bf16;
  double p = 0;
  bool tf32 = false;
  int64_t window = 0;
};

// Asks the kernels of `op` with names ending in `suffix`, in their order, about a Program of
// attention and its gradient. Returns the first nonempty answer.
template <class Ask>
std::string ask(const std::string& op, const std::string& suffix, const Problem& x, const Device& device, Ask answer) {
  Program program;
  Builder b(program);
  b.origin = Origin("test");
  Attrs attrs = Attrs().set("heads", x.heads).set("kv_heads", x.kv_heads).set("scale", 0.125).set("causal", 1);
  int64_t out = x.heads * x.head_dim, width = out + 2 * x.kv_heads * x.head_dim;
  auto input = [&](const char* name, DType t, const Shape& s) {
    return b.declare(name, t, s, Role::input, Lifetime::micro_step);
  };
  ValueId qkv = input("qkv", x.dtype, {x.batch, x.tokens, width}), scalars = input("scalars", DType::u8, {64});
  ValueId dout = input("dout", x.dtype, {x.batch, x.tokens, out});
  attrs.set("p", x.p).set("rng_id", 1);
  if (x.tf32) attrs.set("tf32", 1);
  if (x.window) attrs.set("window", x.window);
  auto saved = b.emit("attention", {qkv, scalars}, attrs);
  b.emit("attention_grad", {dout, qkv, saved[0], saved[1], scalars}, attrs);
  for (const Kernel& k : kernels_of("cuda"))
    for (const Instr& i : program.code)
      if (k.op == op && i.op->name == op && std::string(k.name).ends_with(suffix))
        if (std::string text = answer(k, KernelQuery{program, i, device}); !text.empty()) return text;
  return "";
}

std::string reject(const char* op, const Problem& x, const Device& device = h200(), const char* kernel = ".cudnn") {
  return ask(op, kernel, x, device, [](const Kernel& k, const KernelQuery& q) { return k.reject(q); });
}
int64_t workspace(const char* op, const Problem& x, const Device& device = h200(), const char* kernel = ".cudnn") {
  return std::stoll(
      ask(op, kernel, x, device, [](const Kernel& k, const KernelQuery& q) { return std::to_string(k.workspace(q)); }));
}
std::string chosen(const char* op, const Problem& x, const Device& device = h200()) {
  return ask(op, "", x, device,
             [](const Kernel& k, const KernelQuery& q) { return k.reject(q).empty() ? std::string(k.name) : ""; });
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

// Sizes from cuDNN 9.19 for its plans on an H200.
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

TEST(Sm90Planning, IsChosenWhereItIsFaster) {
  Device without_cudnn = h200(), a100 = described_device(find_data_sheet("a100"));
  without_cudnn.cudnn = false;
  EXPECT_EQ(chosen("attention", {}), "cuda.attention.sm90.d64");
  EXPECT_EQ(chosen("attention_grad", {}), "cuda.attention_grad.sm90.d64");
  EXPECT_EQ(chosen("attention_grad", {.kv_heads = 4, .dtype = DType::f16}), "cuda.attention_grad.sm90.d64");
  EXPECT_EQ(chosen("attention", {.head_dim = 128}), "cuda.attention.cudnn");
  EXPECT_EQ(chosen("attention", {.head_dim = 128, .p = 0.1}), "cuda.attention.sm90.d128");
  EXPECT_EQ(chosen("attention_grad", {.head_dim = 128}, without_cudnn), "cuda.attention_grad.sm90.d128");
  EXPECT_EQ(chosen("attention_grad", {.head_dim = 80}, without_cudnn), "cuda.flash.mma");
  EXPECT_EQ(chosen("attention_grad", {}, a100), "cuda.attention_grad.cudnn");
}

// A tensor-core kernel supports every dtype and head. The general kernel runs only the cases left.
TEST(FlashPlanning, NoUsualHeadFallsToTheGenericKernel) {
  for (const char* op : {"attention", "attention_grad"}) {
    for (int64_t head_dim : {8, 64, 80, 128}) {
      EXPECT_EQ(chosen(op, {.head_dim = head_dim, .dtype = DType::f32}), "cuda.flash.fp32") << head_dim;
      EXPECT_EQ(chosen(op, {.head_dim = head_dim, .dtype = DType::f32, .tf32 = true}), "cuda.flash.tf32") << head_dim;
    }
    for (int64_t head_dim : {136, 160, 192, 256}) {
      EXPECT_EQ(chosen(op, {.head_dim = head_dim}), "cuda.flash.wide") << head_dim;
      EXPECT_EQ(chosen(op, {.head_dim = head_dim, .dtype = DType::f32}), "cuda.flash.wide.fp32") << head_dim;
      EXPECT_EQ(chosen(op, {.head_dim = head_dim, .dtype = DType::f32, .tf32 = true}), "cuda.flash.wide.tf32");
    }
    EXPECT_EQ(chosen(op, {.heads = 4, .kv_heads = 2, .head_dim = 512, .dtype = DType::f16, .p = 0.1}),
              "cuda.flash.wide");
    EXPECT_EQ(chosen(op, {.heads = 2, .kv_heads = 2, .head_dim = 520}), "cuda.attention.generic");
    EXPECT_EQ(chosen(op, {.heads = 2, .kv_heads = 2, .head_dim = 264, .dtype = DType::f32}), "cuda.attention.generic");
    EXPECT_NE(reject(op, {.dtype = DType::f32}, h200(), ".flash.tf32").find("--precision tf32"), std::string::npos);
  }
}

// No window needs the general kernel, and a window over the whole sequence is no window.
TEST(WindowPlanning, TheSameKernelsTakeWindows) {
  for (const char* op : {"attention", "attention_grad"}) {
    for (Problem x : {Problem{}, Problem{.head_dim = 128}, Problem{.head_dim = 80, .p = 0.1}, Problem{.head_dim = 256},
                      Problem{.dtype = DType::f32}}) {
      std::string without = chosen(op, x);
      for (int64_t window : {1, 256, 1024, 4096}) {
        x.window = window;
        EXPECT_EQ(chosen(op, x), without) << op << " " << x.head_dim << " " << window;
      }
    }
    EXPECT_EQ(reject(op, {.window = 256}), "");
    EXPECT_NE(reject(op, {.window = 256}, h200(), ".flash.tile64").find("window"), std::string::npos);
    EXPECT_EQ(reject(op, {.window = 1024}, h200(), ".flash.tile64"), "");
  }
  // The first key of every query, in tiles of 128.
  EXPECT_EQ(workspace("attention_grad", {.window = 256}, h200(), ".sm90.d64") -
                workspace("attention_grad", {}, h200(), ".sm90.d64"),
            64 * 12 * 8 * 128 * 4);
}

TEST(Sm90Planning, SaysWhyNot) {
  for (const char* op : {"attention", "attention_grad"}) {
    EXPECT_NE(reject(op, {.head_dim = 128}, h200(), ".sm90.d64").find("head_dim of 64, not 128"), std::string::npos);
    EXPECT_NE(reject(op, {.dtype = DType::f32}, h200(), ".sm90.d64").find("f32"), std::string::npos);
    Device newer = h200();
    newer.sm = 100;
    EXPECT_NE(reject(op, {}, newer, ".sm90.d64").find("compute capability 9.0"), std::string::npos);
  }
}

// 128 queries have 1 KiB of statistics; 160 heads at once have their sums of dQ, 32 KiB for 128
// queries.
TEST(Sm90Planning, ReservesSumsOfAFewHeads) {
  int64_t statistics = 64 * 12 * 8 * 1024, sums = 160 * 8 * 32768, counters = 10496;
  EXPECT_EQ(workspace("attention_grad", {}, h200(), ".sm90.d64"), statistics + sums + counters);
  EXPECT_LT(workspace("attention_grad", {.batch = 4, .tokens = 16384}, h200(), ".sm90.d64"), 160 << 20);
}

}  // namespace
}  // namespace crest
