// Rates of the fast CPU kernels at the shapes of gpt2-124M, batch 4 x 256 tokens, beside the machine's ceilings.
//
//   g++ -std=c++20 -O2 -fopenmp -Isrc/base -Isrc/step -Isrc/devices studies/cpu_gemm/kernels.cpp build/release/libcrest_lib.a -ldnnl -lfmt -o
//   /tmp/kernels [THREADS [all|gemms|others|ceilings [f32|bf16|f16]]]
//
// Each figure is the best of several runs: thread CPU time with one thread (other processes disturb it
// less), else wall clock. Bytes count each input read once and each output written once.
#include <omp.h>
#include <time.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "backend/cpu/gemm.h"
#include "backend/cpu/index.h"
#include "core/scalars.h"
#include "program/op.h"
#include "device/find.h"

using namespace crest;

static int threads = 2;

static double now() {
  timespec t;
  clock_gettime(threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &t);
  return double(t.tv_sec) + 1e-9 * double(t.tv_nsec);
}

template <class F>
double best_seconds(F f) {
  double best = 1e30, spent = 0;
  for (int i = 0; i < 30 && (i < 3 || spent < 1.0); ++i) {
    double start = now();
    f();
    double t = now() - start;
    spent += t;
    if (i > 0 && t < best) best = t;
  }
  return best;
}

struct Bench {
  Program program;
  std::vector<void*> pointers;
  ~Bench() {
    for (void* p : pointers) std::free(p);
  }
  ValueId value(DType t, const Shape& s) {
    Value v;
    v.name = "v" + std::to_string(program.values.size());
    v.dtype = t, v.shape = s;
    v.layout = {ValueId(program.values.size()), 0, s.contiguous_strides()};
    void* p = std::aligned_alloc(4096, (size_t(v.bytes()) + 4095) / 4096 * 4096);
    uint64_t state = program.values.size() + 1;
    for (int64_t i = 0; i < v.numel(); ++i) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      double x = double(state >> 40) * 0x1p-24 * 2 - 1;
      if (t == DType::i32) x = double((state >> 33) % 50257);
      if (t == DType::u8) x = 0;
      store_element(p, t, i, x);
    }
    if (t == DType::u8) static_cast<Scalars*>(p)->loss_scale = static_cast<Scalars*>(p)->grad_factor = 1;
    program.values.push_back(v);
    pointers.push_back(p);
    return ValueId(program.values.size() - 1);
  }
  void run(const std::string& op, std::vector<ValueId> in, std::vector<ValueId> out, Attrs attrs, double flops,
           const char* note) {
    OpDef def{};
    def.name = op.c_str();
    Instr instr;
    instr.op = &def, instr.in = in, instr.out = out, instr.attrs = attrs;
    Device device = cpu_device(active_isa(), threads);
    KernelQuery query{program, instr, device};
    std::vector<void*> in_p, out_p;
    double bytes = 0;
    for (ValueId v : in) in_p.push_back(pointers[size_t(v)]), bytes += double(program.at(v).bytes());
    for (ValueId v : out) out_p.push_back(pointers[size_t(v)]), bytes += double(program.at(v).bytes());
    for (const Kernel& k : cpu_kernels()) {
      if (op != k.op) continue;
      if (!k.reject(query).empty()) std::printf("%s rejects: %s\n", k.name, k.reject(query).c_str());
      size_t size = k.workspace ? k.workspace(query) : 0;
      auto prepared = k.prepare ? k.prepare(query) : nullptr;
      void* w = std::aligned_alloc(4096, (size + 8191) / 4096 * 4096);
      KernelCall call{program, instr, in_p.data(), out_p.data(), w, prepared.get(), threads, nullptr, nullptr, &device};
      double t = best_seconds([&] { k.launch(call); });
      std::printf("| `%s` | %s | %.3f | %.0f | %.1f | %.1f |\n", k.name, note, t * 1e3, flops / t * 1e-9,
                  bytes / t * 1e-9, double(size) / 1048576);
      std::fflush(stdout);
      std::free(w);
    }
  }
};

static void gemms(DType t) {
  const int64_t rows = 1024, shapes[][2] = {{768, 2304}, {768, 768}, {768, 3072}, {3072, 768}, {768, 50304}};
  for (auto [k, n] : shapes) {
    Bench b;
    auto x = b.value(t, {rows, k}), w = b.value(t, {n, k}), bias = b.value(t, {n}), y = b.value(t, {rows, n});
    auto dw = b.value(DType::f32, {n, k}), a = b.value(t, {rows, n});
    double flops = 2.0 * double(rows) * double(n) * double(k);
    std::string s = std::string(name(t)) + " " + std::to_string(k) + " to " + std::to_string(n);
    bool head = n > 10000;
    if (head)
      b.run("linear", {x, w}, {y}, {}, flops, s.c_str());
    else
      b.run("linear", {x, w, bias}, {y}, {}, flops, (s + " with bias").c_str());
    if (n == 3072) b.run("linear_gelu", {x, w, bias}, {a, y}, Attrs().set("keep", 1), flops, s.c_str());
    b.run("linear_dx", {y, w}, {x}, {}, flops, s.c_str());
    b.run("linear_dw", {y, x}, {dw}, {}, flops, s.c_str());
    b.run("linear_dw", {y, x, dw}, {dw}, {}, flops, (s + " accumulating").c_str());
  }
  Bench b;
  auto q = b.value(t, {4, 12, 256, 64}), k = b.value(t, {4, 12, 256, 64}), s = b.value(t, {4, 12, 256, 256});
  double flops = 2.0 * 48 * 256 * 256 * 64;
  std::string n = std::string(name(t));
  b.run("matmul", {q, k}, {s}, Attrs().set("transpose_b", 1), flops, (n + " q k^T, 48 heads, T 256").c_str());
  b.run("matmul", {s, k}, {q}, {}, flops, (n + " p v").c_str());
  b.run("matmul", {s, k}, {q}, Attrs().set("transpose_a", 1), flops, (n + " p^T dy").c_str());
}

static void others(DType t) {
  std::string n = std::string(name(t));
  {
    Bench b;
    auto logits = b.value(t, {1024, 50304}), targets = b.value(DType::i32, {1024}), scalars = b.value(DType::u8, {64});
    auto loss = b.value(DType::f32, {1024}), lse = b.value(DType::f32, {1024});
    Attrs attrs = Attrs().set("vocab", 50257).set("scale", 1.0);
    double elements = 1024.0 * 50304;
    b.run("cross_entropy", {logits, targets}, {loss, lse}, attrs, elements, (n + " 1024 x 50304").c_str());
    b.run("cross_entropy_grad", {logits, targets, lse, scalars}, {logits}, attrs, elements, n.c_str());
    b.run("cross_entropy_fused", {logits, targets, scalars}, {loss, logits}, attrs, 2 * elements, n.c_str());
    auto dy = b.value(t, {1024, 3072}), db = b.value(DType::f32, {3072});
    b.run("bias_grad", {dy}, {db}, {}, 1024.0 * 3072, (n + " 1024 x 3072").c_str());
  }
  {
    Bench b;
    auto ids = b.value(DType::i32, {4, 256}), table = b.value(t, {50304, 768}), x = b.value(t, {4, 256, 768});
    auto dt = b.value(DType::f32, {50304, 768});
    b.run("embedding", {ids, table}, {x}, {}, 0, (n + " (bytes count the whole table)").c_str());
    b.run("embedding_grad", {ids, x, dt}, {dt}, {}, 0, (n + " accumulating (same)").c_str());
    b.run("embedding_grad", {ids, x}, {dt}, {}, 0, n.c_str());
  }
  {
    Bench b;
    int64_t size = 40'000'000;
    auto scalars = b.value(DType::u8, {64}), p = b.value(DType::f32, {size}), m = b.value(DType::f32, {size});
    auto v = b.value(DType::f32, {size}), g = b.value(DType::f32, {size}), w = b.value(t, {size});
    Attrs attrs =
        Attrs().set("beta1", 0.9).set("beta2", 0.95).set("eps", 1e-8).set("weight_decay", 0.1).set("clip", 1.0);
    b.run("grad_norm", {scalars, g}, {scalars}, attrs, double(size), "f32, 40M");
    if (t == DType::f32)
      b.run("adamw", {scalars, p, m, v, g}, {p, m, v}, attrs, double(size), "f32, no copy, 40M");
    else
      b.run("adamw", {scalars, p, m, v, g, w}, {p, m, v, w}, attrs, double(size), (n + " copy, 40M").c_str());
    b.run("cast", {p}, {w}, {}, double(size), ("f32 to " + n + ", 40M").c_str());
  }
}

static void ceilings(const std::string& only) {
  for (DType t : {DType::f32, DType::bf16}) {
    if (!only.empty() && name(t) != only) continue;
    int64_t s = 8192;
    Bench b;
    auto x = b.value(t, {s, s}), w = b.value(t, {s, s}), y = b.value(t, {s, s});
    b.run("linear", {x, w}, {y}, {}, 2.0 * double(s) * double(s) * double(s), "ceiling: 8192 square");
  }
  size_t n = size_t(1) << 28;
  auto* a = static_cast<char*>(std::aligned_alloc(4096, n));
  auto* c = static_cast<char*>(std::aligned_alloc(4096, n));
  std::memset(a, 1, n), std::memset(c, 2, n);
  double t = best_seconds([&] {
#pragma omp parallel for num_threads(threads)
    for (int i = 0; i < 256; ++i) std::memcpy(c + size_t(i) * (n / 256), a + size_t(i) * (n / 256), n / 256);
  });
  std::printf("| memcpy | ceiling: 256 MiB | %.3f | | %.1f | |\n", t * 1e3, 2 * double(n) / t * 1e-9);
  t = best_seconds([&] {
    uint64_t sum = 0;
#pragma omp parallel for simd num_threads(threads) reduction(+ : sum)
    for (int64_t i = 0; i < int64_t(n / 8); ++i) sum += reinterpret_cast<uint64_t*>(a)[i];
    if (sum == 1) std::puts("");
  });
  std::printf("| read | ceiling: 256 MiB | %.3f | | %.1f | |\n", t * 1e3, double(n) / t * 1e-9);
}

int main(int argc, char** argv) {
  if (argc > 1) threads = std::atoi(argv[1]);
  std::string what = argc > 2 ? argv[2] : "all";
  omp_set_num_threads(threads);
  std::printf(
      "%s, %d threads, %s\n\n| kernel | case | ms | GFLOP/s | GB/s | workspace MiB |\n|---|---|---|---|---|---|\n",
      cpu_name().c_str(), threads, std::string(name(active_isa())).c_str());
  if (what == "all" || what == "ceilings") ceilings(argc > 3 ? argv[3] : "");
  for (DType t : {DType::f32, DType::bf16, DType::f16}) {
    if (argc > 3 && name(t) != argv[3]) continue;
    if (what == "all" || what == "gemms") gemms(t);
    if (what == "all" || what == "others") others(t);
  }
}
