// How the product on AMX (src/backend/cpu/gemm_amx.h) scales: a part of c for each thread, and blocks of c as threads
// become free, in turns, by number of threads. docs/results/cpu/cores.md
//   amx_threads [ROUNDS=8] [ROWS=1024] THREADS..
#include <omp.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "backend/cpu/gemm_amx.h"

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
  for (size_t i = 0; i < bytes / 2; ++i) h[i] = uint16_t(0x3c00 + i * 2654435761u % 512);
  return p;
}

int main(int argc, char** argv) {
  syscall(SYS_arch_prctl, 0x1023, 18);
  int rounds = argc > 1 ? std::atoi(argv[1]) : 8;
  int64_t rows = argc > 2 ? std::atoi(argv[2]) : 1024;
  std::vector<PackedShape> shapes;
  for (auto [k, n] : std::vector<std::pair<int64_t, int64_t>>{{768, 2304}, {768, 768}, {768, 3072}, {3072, 768}}) {
    shapes.push_back({rows, n, k, false, true, DType::bf16, DType::bf16});
    shapes.push_back({rows, k, n, false, false, DType::bf16, DType::bf16});
    shapes.push_back({n, k, rows, true, false, DType::bf16, DType::f32});
  }
  shapes.push_back({rows / 2, 50304, 768, false, true, DType::bf16, DType::bf16});
  shapes.push_back({rows / 2, 768, 50304, false, false, DType::bf16, DType::bf16});
  shapes.push_back({50304, 768, rows / 2, true, false, DType::bf16, DType::f32});
  std::printf("GFLOP/s, free blocks / a part each, by threads\n| m n k |");
  for (int i = 3; i < argc; ++i) std::printf(" %s |", argv[i]);
  std::printf("\n");
  size_t most = 0, space = 0;
  for (auto& s : shapes) {
    most = std::max({most, size_t(s.m * s.k * 2), size_t(s.k * s.n * 2), size_t(s.m * s.n * 4)});
    for (int i = 3; i < argc; ++i) space = std::max(space, amx_gemm_workspace(s, std::atoi(argv[i])));
  }
  char *a = memory(most), *b = memory(most), *c = memory(most), *workspace = memory(space);
  for (auto& s : shapes) {
    std::printf("| %ld %ld %ld |", long(s.m), long(s.n), long(s.k));
    for (int i = 3; i < argc; ++i) {
      int threads = std::atoi(argv[i]);
      double best[2] = {1e9, 1e9};
      for (int r = 0; r < rounds; ++r)
        for (int grid = 0; grid < 2; ++grid) {
          PackedOperands o;
          o.a = a, o.b = b, o.c = c;
          AmxBlocking blocking;
          blocking.grid = grid;
          double start = now();
          amx_gemm(s, o, workspace, threads, blocking);
          best[grid] = std::min(best[grid], now() - start);
        }
      double gflop = 2e-9 * double(s.m * s.n * s.k);
      std::printf(" %.0f / %.0f |", gflop / best[0], gflop / best[1]);
      std::fflush(stdout);
    }
    std::printf("\n");
  }
}
