// The packed product of src/devices/backend/cpu/gemm_packed.h beside oneDNN's sgemm, in turns, on the shapes of a GPT-2 124M
// step: docs/results/cpu_gemm.md. Seconds are those of all threads' processors over the number of threads, so that
// other processes of the machine do not count; minimum of rounds.
#include <omp.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <oneapi/dnnl/dnnl.hpp>
#include <random>
#include <vector>

#include "backend/cpu/contraction.h"
#include "backend/cpu/gemm_packed.h"
#include "backend/cpu/simd/few_rows.h"

using namespace crest;
using namespace crest::cpu;

// Wall and processor time of a call.
struct Time {
  double wall = 1e30, cpu = 1e30;
};
static double clock_of(clockid_t id) {
  timespec t;
  clock_gettime(id, &t);
  return double(t.tv_sec) + 1e-9 * double(t.tv_nsec);
}
static void measure(Time& best, const std::function<void()>& run) {
  double w = clock_of(CLOCK_MONOTONIC), c = clock_of(CLOCK_PROCESS_CPUTIME_ID);
  run();
  best.cpu = std::min(best.cpu, clock_of(CLOCK_PROCESS_CPUTIME_ID) - c);
  best.wall = std::min(best.wall, clock_of(CLOCK_MONOTONIC) - w);
}

// Memory as the planned arenas have it: huge pages.
struct Floats {
  int64_t n;
  float* p;
  explicit Floats(int64_t size) : n(size) {
    size_t bytes = (size_t(n) * 4 + (2 << 20)) / (2 << 20) * (2 << 20);
    p = static_cast<float*>(std::aligned_alloc(2 << 20, bytes));
    madvise(p, bytes, MADV_HUGEPAGE);
    static std::mt19937 rng(1);
    for (int64_t i = 0; i < n; ++i) p[i] = float(int32_t(rng())) * 0x1p-31f;
  }
  Floats(const Floats&) = delete;
  ~Floats() { std::free(p); }
};

// Few rows against sgemm of the same, one thread: bytes of the weights per second, read once.
static void few_rows(int rounds) {
  std::printf(
      "| rows n k | few rows f32 GB/s | bf16 GB/s | sgemm f32 GB/s | few rows / sgemm |\n|---|---|---|---|---|\n");
  for (auto [n, k] : std::vector<std::pair<int64_t, int64_t>>{{50304, 768}, {3072, 768}, {768, 3072}})
    for (int64_t rows : {1, 2, 4, 8, 12}) {
      Floats x(rows * k), w(n * k), y(rows * n), half(n * k / 2);
      for (int64_t i = 0; i < n * k; ++i) store_element(half.p, DType::bf16, i, w.p[i]);
      Time f32, bf16, theirs;
      for (int r = 0; r < rounds; ++r) {
        FewRowsArgs a{x.p, w.p, nullptr, y.p, nullptr, DType::f32, false, rows, n, k};
        measure(f32, [&] { CREST_SIMD_PICK(few_rows_functions).outputs(a, 0, n); });
        a.dtype = DType::bf16, a.w = half.p;
        measure(bf16, [&] { CREST_SIMD_PICK(few_rows_functions).outputs(a, 0, n); });
        measure(theirs, [&] { dnnl::sgemm('N', 'T', rows, n, k, 1, x.p, k, w.p, k, 0, y.p, n); });
      }
      double gb = 4e-9 * double(n) * double(k);
      std::printf("| %ld %ld %ld | %.1f | %.1f | %.1f | %.2f |\n", long(rows), long(n), long(k), gb / f32.cpu,
                  gb / 2 / bf16.cpu, gb / theirs.cpu, theirs.cpu / f32.cpu);
      std::fflush(stdout);
    }
}

// linear_gelu that keeps the product: GELU in the epilogue against sgemm and a pass of its own.
static void with_gelu(int threads, int rounds) {
  for (auto [m, n, k] : {std::array<int64_t, 3>{1024, 3072, 768}, std::array<int64_t, 3>{1024, 1536, 384}}) {
    PackedShape shape{m, n, k, false, true};
    Floats a(m * k), b(n * k), bias(n), h(m * n), c(m * n), workspace(int64_t(packed_gemm_workspace(shape) / 4));
    PackedOperands o{a.p, b.p, bias.p, nullptr, c.p, true, h.p};
    Time ours, theirs;
    for (int r = 0; r < rounds; ++r) {
      measure(ours, [&] { packed_gemm(shape, o, workspace.p, threads); });
      measure(theirs, [&] {
        for (int64_t i = 0; i < m; ++i) std::copy_n(bias.p, n, h.p + i * n);
        dnnl::sgemm('N', 'T', m, n, k, 1, a.p, k, b.p, k, 1, h.p, n);
        gelu(c.p, h.p, DType::f32, m * n, threads);
      });
    }
    std::printf("| linear_gelu | %ld %ld %ld | %.2f ms | %.2f ms | %.2f |\n", long(m), long(n), long(k), ours.cpu * 1e3,
                theirs.cpu * 1e3, theirs.cpu / ours.cpu);
  }
}

int main(int argc, char** argv) {
  int threads = argc > 1 ? std::atoi(argv[1]) : 1, rounds = argc > 2 ? std::atoi(argv[2]) : 10;
  omp_set_num_threads(threads);
  if (argc > 3) return few_rows(rounds), 0;
  with_gelu(threads, rounds);
  std::printf("| product | m n k | packed GFLOP/s cpu (wall) | sgemm GFLOP/s cpu (wall) | packed / sgemm |\n");
  std::printf("|---|---|---|---|---|\n");
  struct Size {
    const char* what;
    int64_t m, n, k;
    bool ta, tb;
  };
  std::vector<Size> sizes;
  int64_t rows = 1024;
  for (auto [n, k] : std::vector<std::pair<int64_t, int64_t>>{
           {2304, 768}, {768, 768}, {3072, 768}, {768, 3072}, {50304, 768}, {384, 384}, {1536, 384}}) {
    sizes.push_back({"linear", rows, n, k, false, true});
    sizes.push_back({"linear_dx", rows, k, n, false, false});
    sizes.push_back({"linear_dw", n, k, rows, true, false});
  }
  for (const Size& s : sizes) {
    Floats a(s.m * s.k), b(s.k * s.n), c(s.m * s.n), d(s.m * s.n);
    PackedShape shape{s.m, s.n, s.k, s.ta, s.tb};
    Floats workspace(int64_t(packed_gemm_workspace(shape) / 4));
    PackedOperands o;
    o.a = a.p, o.b = b.p, o.c = c.p;
    Time ours, theirs;
    for (int r = 0; r < (s.m * s.n * s.k > (1LL << 34) ? rounds / 3 + 1 : rounds); ++r) {
      measure(ours, [&] { packed_gemm(shape, o, workspace.p, threads); });
      measure(theirs, [&] {
        dnnl::sgemm(s.ta ? 'T' : 'N', s.tb ? 'T' : 'N', s.m, s.n, s.k, 1, a.p, s.ta ? s.m : s.k, b.p, s.tb ? s.k : s.n,
                    0, d.p, s.n);
      });
    }
    double error = 0;
    for (int64_t i = 0; i < c.n; ++i) error = std::max(error, double(std::abs(c.p[i] - d.p[i])));
    double g = 2e-9 * double(s.m) * double(s.n) * double(s.k);
    std::printf("| %s | %ld %ld %ld | %.0f (%.0f) | %.0f (%.0f) | %.2f |%s\n", s.what, long(s.m), long(s.n), long(s.k),
                g / ours.cpu * threads, g / ours.wall, g / theirs.cpu * threads, g / theirs.wall, theirs.cpu / ours.cpu,
                error < 1e-2 ? "" : " WRONG");
    std::fflush(stdout);
  }
}
