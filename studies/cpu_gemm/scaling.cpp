// How the products on AMX (src/devices/backend/cpu/gemm_amx.h) and on float vectors (gemm_packed.h) and oneDNN's sgemm scale
// with threads, on the shapes of a GPT-2 124M step. docs/results/cpu/cores.md
//   g++ -std=c++20 -O2 -fopenmp -DCREST_HAVE_avx2 -DCREST_HAVE_avx512 -Isrc/base -Isrc/step -Isrc/devices studies/cpu_gemm/scaling.cpp -o scaling \
//     build/release/libcrest_lib.a -ldnnl -lfmt -ltomlplusplus -lsqlite3 -lz -llzma -lzstd -lutf8proc -lgloo
//   ./scaling ROUNDS ROWS THREADS..
#include <omp.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <oneapi/dnnl/dnnl.hpp>
#include <vector>

#include "backend/cpu/gemm_amx.h"
#include "backend/cpu/gemm_packed.h"

using namespace crest;
using namespace crest::cpu;

static double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

static char* memory(size_t bytes) {
  bytes = (bytes + (2 << 20)) / (2 << 20) * (2 << 20);
  auto* p = static_cast<char*>(mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  madvise(p, bytes, MADV_HUGEPAGE);
  auto* h = reinterpret_cast<uint16_t*>(p);
  // Normal numbers of either type.
  for (size_t i = 0; i < bytes / 2; ++i) h[i] = uint16_t(0x3c00 + i * 2654435761u % 512);
  return p;
}

// Products of one type: `ways` are run in turns, the fastest time of each counts.
template <class... Way>
static void table(const char* title, const std::vector<PackedShape>& shapes, const std::vector<int>& counts, int rounds,
                  Way... ways) {
  std::printf("GFLOP/s of %s, by threads\n| m n k |", title);
  for (int n : counts) std::printf(" %d |", n);
  std::printf("\n");
  for (auto& s : shapes) {
    std::printf("| %ld %ld %ld |", long(s.m), long(s.n), long(s.k));
    for (int threads : counts) {
      const char* separator = " ";
      std::array<double, sizeof...(ways)> best;
      best.fill(1e9);
      for (int r = 0; r < rounds; ++r) {
        size_t i = 0;
        auto timed = [&](auto& way) {
          double start = now();
          way(s, threads);
          best[i] = std::min(best[i], now() - start), ++i;
        };
        (timed(ways), ...);
      }
      for (double b : best) std::printf("%s%.0f", separator, 2e-9 * double(s.m * s.n * s.k) / b), separator = " / ";
      std::printf(" |");
      std::fflush(stdout);
    }
    std::printf("\n");
  }
}

int main(int argc, char** argv) {
  if (argc < 4) return std::fprintf(stderr, "scaling ROUNDS ROWS THREADS..\n"), 2;
  int rounds = std::atoi(argv[1]);
  int64_t rows = std::atoi(argv[2]);
  std::vector<int> counts;
  for (int i = 3; i < argc; ++i) counts.push_back(std::atoi(argv[i]));
  auto shapes_of = [&](DType t) {
    std::vector<PackedShape> all;
    auto add = [&](int64_t r, int64_t k, int64_t n) {
      all.push_back({r, n, k, false, true, t, t});
      all.push_back({r, k, n, false, false, t, t});
      all.push_back({n, k, r, true, false, t, DType::f32});
    };
    for (auto [k, n] : std::vector<std::pair<int64_t, int64_t>>{{768, 2304}, {768, 768}, {768, 3072}, {3072, 768}})
      add(rows, k, n);
    add(rows / 2, 768, 50304);
    return all;
  };
  size_t most = 0, space = 0;
  for (auto& s : shapes_of(DType::f32)) {
    most = std::max({most, size_t(s.m * s.k * 4), size_t(s.k * s.n * 4), size_t(s.m * s.n * 4)});
    space = std::max(space, packed_gemm_workspace(s));
  }
  for (auto& s : shapes_of(DType::bf16))
    for (int n : counts) space = std::max(space, amx_gemm_workspace(s, n));
  char *a = memory(most), *b = memory(most), *c = memory(most), *workspace = memory(space);
  PackedOperands o;
  o.a = a, o.b = b, o.c = c;
  if (active_isa() == Isa::amx)
    table("bf16 on AMX", shapes_of(DType::bf16), counts, rounds,
          [&](const PackedShape& s, int threads) { amx_gemm(s, o, workspace, threads); });
  table(
      "fp32, sgemm / packed", shapes_of(DType::f32), counts, rounds,
      [&](const PackedShape& s, int threads) {
        omp_set_num_threads(threads);
        dnnl::sgemm(s.a_transposed ? 'T' : 'N', s.b_transposed ? 'T' : 'N', s.m, s.n, s.k, 1,
                    reinterpret_cast<float*>(a), s.a_transposed ? s.m : s.k, reinterpret_cast<float*>(b),
                    s.b_transposed ? s.k : s.n, 0, reinterpret_cast<float*>(c), s.n);
      },
      [&](const PackedShape& s, int threads) { packed_gemm(s, o, workspace, threads); });
}
