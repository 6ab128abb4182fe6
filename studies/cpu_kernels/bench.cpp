// Rates of the fast CPU kernels: GB/s of memory-bound ones beside the machine's copy bandwidth, GFLOP/s of attention
// beside the register-tile product that it is made of. How to build and run it: docs/results/cpu_kernels.md.
#include <dnnl.h>
#include <fmt/format.h>
#include <omp.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <ctime>
#include <functional>

#include "../../tests/backend/fast_call.h"
#include "host/isa.h"
#include "core/scalars.h"

using namespace crest;
using namespace crest::testing_call;

namespace {

int threads = 2;

// With one thread: its processor time, which does not count what other processes of the machine take.
double now() {
  timespec t;
  clock_gettime(threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &t);
  return double(t.tv_sec) + 1e-9 * double(t.tv_nsec);
}

// Lower quartile of the durations of repeated runs over about 0.4 s, in seconds.
double seconds(const std::function<void()>& f) {
  f();
  std::vector<double> t;
  double start = now();
  while (t.size() < 5 || now() - start < 0.4) {
    double one = now();
    f();
    t.push_back(now() - one);
  }
  std::nth_element(t.begin(), t.begin() + long(t.size() / 4), t.end());
  return t[t.size() / 4];
}

void report(Call& c, const std::string& label, double flops = 0) {
  c.prepare(threads);
  double s = seconds([&] { c.launch(threads); });
  double bytes = 0;
  for (auto* side : {&c.instr.in, &c.instr.out})
    for (ValueId v : *side)
      if (v != no_value) bytes += double(c.program.at(v).bytes());
  if (flops > 0)
    fmt::print("{:<44} {:9.3f} ms {:8.1f} GFLOP/s\n", label, s * 1e3, flops / s * 1e-9);
  else
    fmt::print("{:<44} {:9.3f} ms {:8.1f} GB/s\n", label, s * 1e3, bytes / s * 1e-9);
}

std::vector<double> some(int64_t n) {
  std::vector<double> x(static_cast<size_t>(n));
  for (size_t i = 0; i < x.size(); ++i) x[i] = double(int64_t(i * 2654435761u % 1000) - 500) / 300;
  return x;
}

void pointwise(const char* op, DType t, int inputs, int64_t n) {
  Call c(op);
  c.instr.attrs.set("value", 0.5);
  for (int i = 0; i < inputs; ++i) c.in(t, Shape{n / 768, 768}, some(n));
  c.out(t, Shape{n / 768, 768});
  report(c, fmt::format("{} {} {} elements", op, name(t), n));
}

void norms(DType t, int64_t rows, int64_t cols) {
  Shape x{rows, cols}, w{cols}, r{rows};
  std::string size = fmt::format(" {} {}x{}", name(t), rows, cols);
  {
    Call c("norm");
    c.instr.attrs.set("kind", "layer").set("eps", 1e-5);
    c.in(t, x, some(x.numel())), c.in(t, w, some(cols)), c.in(t, w, some(cols));
    c.out(t, x), c.out(DType::f32, r), c.out(DType::f32, r);
    report(c, "norm layer" + size);
  }
  {
    Call c("add_norm");
    c.instr.attrs.set("kind", "layer").set("eps", 1e-5);
    c.in(t, x, some(x.numel())), c.in(t, x, some(x.numel())), c.in(t, w, some(cols)), c.in(t, w, some(cols));
    c.out(t, x), c.out(t, x), c.out(DType::f32, r), c.out(DType::f32, r);
    report(c, "add_norm layer" + size);
  }
  {
    Call c("norm_grad");
    c.instr.attrs.set("kind", "layer").set("beta", 1);
    c.in(t, x, some(x.numel())), c.in(t, x, some(x.numel())), c.in(t, w, some(cols));
    c.in(DType::f32, r, std::vector<double>(size_t(rows), 1)),
        c.in(DType::f32, r, std::vector<double>(size_t(rows), 0));
    c.in(t, x, some(x.numel()));
    c.out(t, x), c.out(DType::f32, w), c.out(DType::f32, w);
    report(c, "norm_grad layer" + size);
  }
}

void attention(DType t, int64_t B, int64_t T, int H, int G, int D, double p) {
  Attrs a;
  a.set("heads", H).set("kv_heads", G).set("scale", 0.125).set("causal", 1).set("p", p).set("rng_id", 1);
  Shape qkv{B, T, (H + 2 * G) * D}, o{B, T, H * D}, lse{B, H, T};
  double flops = 4.0 * double(B * H * D) * double(T) * double(T + 1) / 2;
  std::string size = fmt::format(" {} B{} T{} H{}/{} D{} p{}", name(t), B, T, H, G, D, p);
  Scalars s{};
  Call f("attention");
  f.instr.attrs = a;
  f.in(t, qkv, some(qkv.numel()));
  if (p > 0) f.in_struct(s);
  ValueId ov = f.out(t, o), lv = f.out(DType::f32, lse);
  report(f, "attention" + size, flops);
  Call b("attention_grad");
  b.instr.attrs = a;
  b.in(t, o, some(o.numel())), b.in(t, qkv, some(qkv.numel())), b.in(t, o, f.read(ov)),
      b.in(DType::f32, lse, f.read(lv));
  if (p > 0) b.in_struct(s);
  b.out(t, qkv);
  report(b, "attention_grad" + size, 2.5 * flops);
}

}  // namespace

int main(int argc, char** argv) {
  threads = argc > 1 ? std::atoi(argv[1]) : 2;
  bool only_attention = argc > 2;
  fmt::print("{}, {}, {} threads\n", cpu_name(), name(active_isa()), threads);
  int64_t n = int64_t(1) << 25;
  if (!only_attention) {
    std::vector<float> a(static_cast<size_t>(n), 1.0f), b(static_cast<size_t>(n), 2.0f);
    double s = seconds([&] {
#pragma omp parallel for num_threads(threads) schedule(static)
      for (int64_t i = 0; i < n; i += 4096) std::copy_n(a.data() + i, 4096, b.data() + i);
    });
    fmt::print("{:<44} {:9.3f} ms {:8.1f} GB/s\n", "copy f32 (memcpy of 16 KiB pieces)", s * 1e3,
               8.0 * double(n) / s * 1e-9);
    for (DType t : {DType::f32, DType::bf16}) {
      int64_t m = 768 * 16384;
      for (const char* op : {"add", "mul", "tanh_grad", "gelu_grad", "silu_grad"}) pointwise(op, t, 2, m);
      for (const char* op : {"scale", "tanh", "gelu", "silu"}) pointwise(op, t, 1, m);
      norms(t, 16384, 768);
    }
  }
  {
    omp_set_num_threads(threads);
    int64_t m = 1024;
    std::vector<float> a(size_t(m * m), 1.0f), b(a), c(a);
    double s = seconds([&] { dnnl_sgemm('N', 'N', m, m, m, 1, a.data(), m, b.data(), m, 0, c.data(), m); });
    fmt::print("{:<44} {:9.3f} ms {:8.1f} GFLOP/s\n", "oneDNN sgemm 1024^3", s * 1e3,
               2.0 * double(m * m * m) / s * 1e-9);
  }
  for (DType t : {DType::f32, DType::bf16}) {
    attention(t, 1, 1024, 12, 12, 64, 0);
    attention(t, 4, 256, 12, 12, 64, 0);
    attention(t, 1, 2048, 8, 2, 128, 0);
  }
  attention(DType::f32, 1, 1024, 12, 12, 64, 0.1);
}
