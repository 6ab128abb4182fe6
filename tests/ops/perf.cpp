// Mode perf: CREST_PERF=1 prints time, GFLOP/s and GB/s of every kernel at the sizes of a small GPT-2 step.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <iostream>

#include "ops/harness.h"
#include "ops/op.h"

namespace crest::test {

// gpt2-124M with 4 x 256 tokens.
std::vector<Case> perf_cases() {
  std::vector<Case> list;
  for (DType t : {DType::f32, DType::bf16}) {
    auto add = [&](const char* op, const std::string& name, std::vector<Arg> in, Attrs attrs = {}) {
      list.push_back(
          {op, name + " " + std::string(crest::name(t)), std::move(in), attrs, nullptr, some_scalars(), nullptr});
    };
    DType f = DType::f32;
    Shape x = {4, 256, 768}, h = {4, 256, 3072}, logits = {1024, 50304};
    Attrs to_f32 = Attrs().set("dtype", "f32");
    Arg narrow = tensor(t, x), wide = tensor(t, h), w = tensor(t, {3072, 768}, 0.02);
    add("linear", "1024x3072x768", {narrow, w, tensor(t, {3072})});
    add("linear_gelu", "1024x3072x768", {narrow, w, tensor(t, {3072})}, Attrs().set("keep", 1));
    add("linear_dx", "1024x768x3072", {wide, w});
    add("linear_dw", "3072x768x1024 acc", {wide, narrow, tensor(f, {3072, 768})}, to_f32);
    add("bias_grad", "1024x3072", {wide}, to_f32);
    for (const char* op : {"add", "mul", "gelu_grad"}) add(op, "1024x3072", {wide, wide});
    for (const char* op : {"gelu", "silu", "tanh"}) add(op, "1024x3072", {wide});
    add("dropout", "1024x768", {narrow, scalars_arg()}, Attrs().set("p", 0.1).set("rng_id", 1));
    Attrs layer = Attrs().set("kind", "layer").set("eps", 1e-5);
    Arg gamma = tensor(t, {768}), rows = positive(f, {1024});
    add("norm", "1024x768", {narrow, gamma, gamma}, layer);
    add("add_norm", "1024x768", {narrow, narrow, gamma, gamma}, layer);
    add("norm_grad", "1024x768", {narrow, narrow, gamma, rows, rows, narrow, absent(), absent()},
        Attrs().set("kind", "layer").set("beta", 1).set("dtype", "f32"));
    Attrs heads = Attrs().set("heads", 12).set("kv_heads", 12).set("scale", 0.125).set("causal", 1);
    Arg qkv = tensor(t, {4, 256, 2304}, 0.5), scores = tensor(t, {4, 12, 256, 256});
    add("attention", "4x256 12 heads", {qkv}, heads);
    add("attention_grad", "4x256 12 heads", {narrow, qkv, narrow, positive(f, {4, 12, 256})}, heads);
    add("softmax", "4x12x256x256", {scores});
    add("matmul", "scores 4x12x256x256x64", {tensor(t, {4, 12, 256, 64}), tensor(t, {4, 12, 256, 64})},
        Attrs().set("transpose_b", true));
    add("rope", "4x256 12 heads", {qkv}, Attrs().set("heads", 12).set("kv_heads", 12).set("theta", 10000.0));
    add("embedding", "1024 of 50304x768", {ids({4, 256}, 50257), tensor(t, {50304, 768})});
    add("embedding_grad", "1024 of 50304x768", {ids({4, 256}, 50257), narrow}, Attrs(to_f32).set("rows", 50304));
    Attrs loss = Attrs().set("vocab", 50257).set("scale", 1.0 / 1024);
    add("cross_entropy", "1024x50304", {tensor(t, logits), targets({1024}, 50257)}, loss);
    add("cross_entropy_fused", "1024x50304", {tensor(t, logits), targets({1024}, 50257), scalars_arg()}, loss);
    Arg group = tensor(f, {int64_t(7) << 20});
    add("grad_norm", "7 Mi", {scalars_arg(), group}, Attrs().set("clip", 1.0));
    add("adamw", "7 Mi", {scalars_arg(), group, group, positive(f, group.shape), group, tensor(t, group.shape)},
        Attrs().set("beta1", 0.9).set("beta2", 0.95).set("eps", 1e-8).set("weight_decay", 0.1));
  }
  return list;
}

// Median milliseconds of one launch over at least 5 launches and 0.2 s.
static double measure(const Kernel& kernel, const Single& s, const Memory& memory) {
  using Clock = std::chrono::steady_clock;
  std::vector<double> ms;
  double total = 0;
  BoundKernel bound(kernel, cpu(), s.program, s.instr(), memory);
  bound.launch();
  while (ms.size() < 5 || total < 200) {
    auto start = Clock::now();
    bound.launch();
    ms.push_back(std::chrono::duration<double, std::milli>(Clock::now() - start).count());
    total += ms.back();
  }
  std::nth_element(ms.begin(), ms.begin() + long(ms.size() / 2), ms.end());
  return ms[ms.size() / 2];
}

TEST(Perf, EveryKernel) {
  if (!std::getenv("CREST_PERF")) GTEST_SKIP() << "set CREST_PERF=1 to measure";
  std::cout << fmt::format("{:22} {:32} {:34} {:>10} {:>9} {:>8}\n", "op", "case", "kernel", "ms", "GFLOP/s", "GB/s");
  for (const Case& c : perf_cases()) {
    Single s(c);
    Memory memory(s.program);
    s.fill(memory, make_values(c));
    Cost cost = s.instr().op->cost(s.program, s.instr());
    auto kernels = kernels_for(c.op, cpu());
    for (const Kernel* k : kernels) {
      // The reference would take minutes; it is timed only where it is all there is.
      if ((kernels.size() > 1 && k == kernels.back()) || !k->reject({s.program, s.instr(), cpu()}).empty()) continue;
      double ms = measure(*k, s, memory);
      std::cout << fmt::format("{:22} {:32} {:34} {:10.3f} {:9.1f} {:8.1f}\n", c.op, c.name, k->name, ms,
                               cost.flops / ms * 1e-6, cost.bytes() / ms * 1e-6)
                << std::flush;
      EXPECT_TRUE(std::isfinite(ms) && ms > 0);
    }
  }
}

}  // namespace crest::test
