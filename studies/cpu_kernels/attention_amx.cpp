// Attention of bf16 on float vectors and on AMX's matrix units, in turns, forward and backward; causal, so half of the
// square counts as work. Differences of the results beside them: units round probabilities and dS to bf16.
//   g++ -std=c++20 -O2 -fopenmp -Isrc/base -Isrc/step -Isrc/devices studies/cpu_kernels/attention_amx.cpp build/release/libcrest_lib.a -lfmt -ldnnl
//       -o /tmp/attention_amx
//   GOMP_SPINCOUNT=4000 /tmp/attention_amx [THREADS=2] [ROUNDS=20]
#include <fmt/format.h>

#include <chrono>
#include <cstdlib>

#include "../../tests/backend/fast_call.h"
#include "backend/cpu/attention.h"
#include "host/isa.h"

using namespace crest;
using namespace crest::testing_call;

namespace {

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

struct Size {
  int64_t batch, heads, tokens, head_dim;
};

// One instruction with memory of its own, so that kernels can be compared.
struct Timed {
  Call call;
  double best = 1e9;
  Timed(const Call& c, const Kernel& k, int threads) : call(c) { call.prepare(k, threads); }
  void run(int threads) {
    double t = now();
    call.launch(threads);
    best = std::min(best, now() - t);
  }
};

void report(const char* what, const Size& s, const Call& call, ValueId result, const Kernel& vectors, const Kernel& amx,
            double flops, int threads, int rounds) {
  Timed a(call, vectors, threads), b(call, amx, threads);
  for (int r = 0; r < rounds; ++r) a.run(threads), b.run(threads);
  fmt::print("| {} | {} {} {} {} | {:.3f} | {:.3f} | {:.0f} | {:.0f} | {:.2f} | {:.4f} |\n", what, s.batch, s.heads,
             s.tokens, s.head_dim, a.best * 1e3, b.best * 1e3, flops / a.best * 1e-9, flops / b.best * 1e-9,
             a.best / b.best, worst(b.call.read(result), a.call.read(result), 1));
}

void compare(const Size& s, int threads, int rounds) {
  Attrs attrs;
  attrs.set("heads", s.heads).set("kv_heads", s.heads).set("scale", 1 / std::sqrt(double(s.head_dim)));
  attrs.set("causal", 1).set("p", 0.0).set("rng_id", 1);
  DType t = DType::bf16;
  Shape qkv{s.batch, s.tokens, 3 * s.heads * s.head_dim}, o{s.batch, s.tokens, s.heads * s.head_dim};
  Shape lse{s.batch, s.heads, s.tokens};
  std::vector<double> x = random_values(t, qkv.numel(), 1), d_o = random_values(t, o.numel(), 2);
  double flops = 2.0 * double(s.batch * s.heads * s.head_dim * s.tokens * (s.tokens + 1));
  Call f("attention"), b("attention_grad");
  f.instr.attrs = b.instr.attrs = attrs;
  f.in(t, qkv, x);
  ValueId result = f.out(t, o), sums = f.out(DType::f32, lse);
  report("forward", s, f, result, cpu::attention_kernel(), cpu::attention_amx_kernel(), flops, threads, rounds);
  f.run(cpu::attention_kernel(), threads);
  b.in(t, o, d_o), b.in(t, qkv, x), b.in(t, o, f.read(result)), b.in(DType::f32, lse, f.read(sums));
  ValueId grad = b.out(t, qkv);
  report("backward", s, b, grad, cpu::attention_grad_kernel(), cpu::attention_grad_amx_kernel(), 2.5 * flops, threads,
         rounds);
}

}  // namespace

int main(int argc, char** argv) {
  int threads = argc > 1 ? std::atoi(argv[1]) : 2, rounds = argc > 2 ? std::atoi(argv[2]) : 20;
  if (active_isa() != Isa::amx) return std::fprintf(stderr, "attention_amx: this machine has no AMX\n"), 1;
  fmt::print("{}, {} threads, best of {} rounds in turns\n", cpu_name(), threads, rounds);
  fmt::print(
      "| | B H T D | vectors ms | AMX ms | vectors GFLOP/s | AMX GFLOP/s | times | largest difference / (1 + value) |\n"
      "|---|---|---|---|---|---|---|---|\n");
  for (const Size& s : {Size{4, 12, 256, 64}, Size{1, 12, 1024, 64}, Size{1, 8, 2048, 128}})
    compare(s, threads, rounds);
}
