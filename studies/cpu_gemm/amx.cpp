// The product on AMX's matrix units (src/devices/backend/cpu/gemm_amx.h): what the units and their loads reach by themselves,
// the product cut in several ways, and oneDNN beside it, in turns, on the shapes of a GPT-2 124M step.
// docs/results/cpu_gemm.md
//   amx limits | cuts | products   [THREADS=2] [ROUNDS=8] [ROWS=1024]
#include <omp.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "backend/cpu/gemm.h"
#include "backend/cpu/gemm_amx.h"
#include "backend/cpu/simd/amx.h"

using namespace crest;
using namespace crest::cpu;

static double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}
static void measure(double& best, const std::function<void()>& run) {
  double t = now();
  run();
  best = std::min(best, now() - t);
}

// Memory as the planned arenas have it: huge pages. Random numbers of [-1, 1) as bf16, or of any bits.
struct Memory {
  char* p;
  size_t bytes;
  explicit Memory(size_t size) : bytes((size + (2 << 20)) / (2 << 20) * (2 << 20)) {
    p = static_cast<char*>(std::aligned_alloc(2 << 20, bytes));
    madvise(p, bytes, MADV_HUGEPAGE);
    std::mt19937 rng(1);
    auto* h = reinterpret_cast<uint16_t*>(p);
    for (size_t i = 0; i < bytes / 2; ++i) h[i] = uint16_t((rng() & 0x8000) | (0x3c00 + (rng() & 0x37f)));
  }
  Memory(const Memory&) = delete;
  ~Memory() { std::free(p); }
  template <class T>
  T* as() const {
    return reinterpret_cast<T*>(p);
  }
};

// One thread's rate when blocks of slivers are multiplied again and again: operands of `a` and `b` slivers.
static void limits(int threads, int rounds) {
  const AmxFunctions& f = avx512::amx_functions;
  std::printf("| operands of a block | KiB of a, b | sums KiB | GFLOP/s of %d threads |\n|---|---|---|---|\n", threads);
  for (auto [rows, columns, steps] : std::vector<std::array<int64_t, 3>>{{32, 32, 4},
                                                                         {32, 32, 8},
                                                                         {32, 32, 12},
                                                                         {32, 32, 16},
                                                                         {32, 32, 24},
                                                                         {32, 32, 48},
                                                                         {64, 64, 8},
                                                                         {64, 256, 8},
                                                                         {256, 256, 4},
                                                                         {256, 256, 8},
                                                                         {256, 256, 12},
                                                                         {256, 256, 16},
                                                                         {256, 256, 24},
                                                                         {256, 256, 32},
                                                                         {384, 384, 8},
                                                                         {384, 384, 12},
                                                                         {512, 512, 8}}) {
    double best = 1e9;
    int repeats = int(std::max<int64_t>(1, (int64_t(1) << 30) / (rows * columns * steps * 64)));
#pragma omp parallel num_threads(threads)
    {
      Memory a(size_t(rows * steps * 64)), b(size_t(columns * steps * 64)), sums(size_t(rows * columns * 4));
      f.configure();
      for (int r = 0; r < rounds; ++r) {
#pragma omp barrier
        double t = now();
        for (int i = 0; i < repeats; ++i)
          f.block(rows, columns, steps, a.as<uint16_t>(), steps * 1024, b.as<uint16_t>(), steps * 1024,
                  sums.as<float>(), i == 0, nullptr, false);
#pragma omp barrier
#pragma omp master
        best = std::min(best, now() - t);
      }
      f.release();
    }
    std::printf("| %ld x %ld, %ld steps | %ld, %ld | %ld | %.0f |\n", rows, columns, steps, rows * steps * 64 / 1024,
                columns * steps * 64 / 1024, rows * columns * 4 / 1024,
                2.0 * double(rows * columns * steps * 32) * repeats * threads / best * 1e-9);
  }
}

struct Case {
  const char* name;
  PackedShape s;
  bool add;
};

static std::vector<Case> cases(int64_t rows) {
  std::vector<Case> all;
  for (auto [k, n] :
       std::vector<std::pair<int64_t, int64_t>>{{768, 2304}, {768, 768}, {768, 3072}, {3072, 768}, {768, 50304}}) {
    all.push_back({"linear", {rows, n, k, false, true, DType::bf16, DType::bf16}, false});
    all.push_back({"linear_dx", {rows, k, n, false, false, DType::bf16, DType::bf16}, false});
    all.push_back({"linear_dw", {n, k, rows, true, false, DType::bf16, DType::f32}, false});
    if (n == 50304) all.push_back({"linear_dw +=", {n, k, rows, true, false, DType::bf16, DType::f32}, true});
  }
  return all;
}

struct Product {
  Case c;
  Memory a, b, out, workspace;
  std::shared_ptr<const Gemm> onednn;
  Product(const Case& x, int threads)
      : c(x),
        a(size_t(x.s.m * x.s.k * 2)),
        b(size_t(x.s.k * x.s.n * 2)),
        out(size_t(x.s.m * x.s.n) * size_of(x.s.c)),
        workspace(std::max<size_t>(256 << 20, amx_gemm_workspace(x.s, threads))) {
    GemmShape g;
    g.m = x.s.m, g.n = x.s.n, g.k = x.s.k, g.ab = x.s.ab, g.c = x.s.c;
    g.a_transposed = x.s.a_transposed, g.b_transposed = x.s.b_transposed;
    g.lda = g.a_transposed ? g.m : g.k, g.ldb = g.b_transposed ? g.k : g.n, g.ldc = g.n;
    g.accumulate = x.add, g.threads = threads;
    onednn = find_gemm(g).gemm;
  }
  void run_amx(int threads, const AmxBlocking& cut) {
    PackedOperands o;
    o.a = a.p, o.b = b.p, o.c = out.p;
    if (c.add) o.add = out.p;
    amx_gemm(c.s, o, workspace.p, threads, cut);
  }
  void run_onednn() { onednn->run(a.p, b.p, nullptr, out.p, workspace.p); }
  double flops() const { return 2.0 * double(c.s.m) * double(c.s.n) * double(c.s.k); }
};

static void cuts(int threads, int rounds, int64_t rows) {
  std::vector<AmxBlocking> all;
  for (int64_t edge : {128, 192, 256, 384, 512})
    for (int64_t steps : {4, 8, 12, 16, 24, 32}) {
      AmxBlocking b;
      b.rows = b.columns = edge, b.steps = steps;
      all.push_back(b);
    }
  std::printf("GFLOP/s of %d threads, %ld rows\n| block | steps |", threads, rows);
  std::vector<Case> some;
  for (const Case& c : cases(rows))
    if (c.s.n == 3072 || c.s.k == 3072 || c.s.m == 3072 || c.s.n == 50304) some.push_back(c);
  for (const Case& c : some) std::printf(" %s %ldx%ldx%ld |", c.name, c.s.m, c.s.n, c.s.k);
  std::printf("\n");
  std::vector<std::vector<double>> best(all.size(), std::vector<double>(some.size(), 1e9));
  for (size_t i = 0; i < some.size(); ++i) {
    Product p(some[i], threads);
    for (int r = 0; r < rounds; ++r)
      for (size_t j = 0; j < all.size(); ++j) measure(best[j][i], [&] { p.run_amx(threads, all[j]); });
    for (auto& row : best) row[i] = p.flops() / row[i] * 1e-9;
  }
  for (size_t j = 0; j < all.size(); ++j) {
    std::printf("| %ld | %ld |", all[j].rows, all[j].steps);
    for (double x : best[j]) std::printf(" %.0f |", x);
    std::printf("\n");
  }
}

static void products(int threads, int rounds, int64_t rows) {
  std::printf(
      "| product | m n k | AMX GFLOP/s | oneDNN GFLOP/s | AMX / oneDNN | AMX ms | workspace MiB "
      "|\n|---|---|---|---|---|---|---|\n");
  for (const Case& c : cases(rows)) {
    Product p(c, threads);
    double ours = 1e9, theirs = 1e9;
    for (int r = 0; r < rounds; ++r) {
      measure(ours, [&] { p.run_amx(threads, {}); });
      measure(theirs, [&] { p.run_onednn(); });
    }
    std::printf("| %s | %ld %ld %ld | %.0f | %.0f | %.2f | %.3f | %.1f |\n", c.name, c.s.m, c.s.n, c.s.k,
                p.flops() / ours * 1e-9, p.flops() / theirs * 1e-9, theirs / ours, ours * 1e3,
                double(amx_gemm_workspace(c.s, threads)) / (1 << 20));
  }
}

int main(int argc, char** argv) {
  std::string what = argc > 1 ? argv[1] : "";
  int threads = argc > 2 ? std::atoi(argv[2]) : 2, rounds = argc > 3 ? std::atoi(argv[3]) : 8;
  int64_t rows = argc > 4 ? std::atoi(argv[4]) : 1024;
  if (active_isa() != Isa::amx) return std::fprintf(stderr, "amx: this machine has no AMX\n"), 1;
  if (what == "limits") return limits(threads, rounds), 0;
  if (what == "cuts") return cuts(threads, rounds, rows), 0;
  if (what == "products") return products(threads, rounds, rows), 0;
  return std::fprintf(stderr, "amx limits | cuts | products   [THREADS] [ROUNDS] [ROWS]\n"), 2;
}
