// What the cores that this process may use reach together: arithmetic on registers, tile products,
// reading memory, and the start and end of a parallel region, also of one that alternates with a region
// of half the threads (libgomp then ends threads and starts new ones).
//   g++ -std=c++20 -O2 -march=sapphirerapids -fopenmp -static studies/cpu_limits/limits.cpp -o limits
//   taskset -c 0-3 ./limits THREADS..
// One row of a table for each number of threads. Threads are pinned to the first cores allowed.
#include <immintrin.h>
#include <omp.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

static double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

static std::vector<int> cores() {
  cpu_set_t set;
  sched_getaffinity(0, sizeof set, &set);
  std::vector<int> list;
  for (int i = 0; i < CPU_SETSIZE; ++i)
    if (CPU_ISSET(i, &set)) list.push_back(i);
  return list;
}

static void pin(int core) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(core, &set);
  sched_setaffinity(0, sizeof set, &set);
}

static float sink;

static double fma512(double seconds) {  // GFLOP/s of this thread
  __m512 a[24], b = _mm512_set1_ps(1.0000001f), c = _mm512_set1_ps(1e-9f);
  for (auto& x : a) x = b;
  double start = now(), end;
  int64_t n = 0;
  do {
    for (int i = 0; i < 2000; ++i)
#pragma GCC unroll 24
      for (auto& x : a) x = _mm512_fmadd_ps(x, b, c);
    n += 2000;
  } while ((end = now()) - start < seconds);
  for (auto& x : a) sink += _mm512_reduce_add_ps(x);
  return double(n) * 24 * 32 / (end - start) / 1e9;
}

static double fma256(double seconds) {
  __m256 a[12], b = _mm256_set1_ps(1.0000001f), c = _mm256_set1_ps(1e-9f);
  for (auto& x : a) x = b;
  double start = now(), end;
  int64_t n = 0;
  do {
    for (int i = 0; i < 4000; ++i)
#pragma GCC unroll 12
      for (auto& x : a) x = _mm256_fmadd_ps(x, b, c);
    n += 4000;
  } while ((end = now()) - start < seconds);
  for (auto& x : a) sink += x[0];
  return double(n) * 12 * 16 / (end - start) / 1e9;
}

static double dpbf16(double seconds) {
  __m512 a[24];
  __m512bh b = (__m512bh)_mm512_set1_epi16(0x3f80);
  for (auto& x : a) x = _mm512_setzero_ps();
  double start = now(), end;
  int64_t n = 0;
  do {
    for (int i = 0; i < 2000; ++i)
#pragma GCC unroll 24
      for (auto& x : a) x = _mm512_dpbf16_ps(x, b, b);
    n += 2000;
  } while ((end = now()) - start < seconds);
  for (auto& x : a) sink += _mm512_reduce_add_ps(x);
  return double(n) * 24 * 64 / (end - start) / 1e9;
}

struct alignas(64) TileConfig {
  uint8_t palette = 1, row = 0, reserved[14] = {};
  uint16_t bytes[16] = {};
  uint8_t rows[16] = {};
};

// 32 x 32 results from operands in the first-level cache: four loads of a tile for four products.
static double amx(double seconds) {
  TileConfig config;
  for (int i = 0; i < 8; ++i) config.bytes[i] = 64, config.rows[i] = 16;
  alignas(64) static thread_local uint16_t a[16 * 512], b[16 * 512];
  _tile_loadconfig(&config);
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  double start = now(), end;
  int64_t n = 0;
  do {
    for (int i = 0; i < 500; ++i)
      for (int k = 0; k < 16; k += 2) {
        _tile_loadd(4, a + k * 512, 64);
        _tile_loadd(5, a + (k + 1) * 512, 64);
        _tile_loadd(6, b + k * 512, 64);
        _tile_loadd(7, b + (k + 1) * 512, 64);
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
      }
    n += 500 * 8 * 4;
  } while ((end = now()) - start < seconds);
  _tile_release();
  return double(n) * 16 * 16 * 32 * 2 / (end - start) / 1e9;
}

static char* pages(size_t bytes) {
  void* p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) std::exit(1);
  madvise(p, bytes, MADV_HUGEPAGE);
  return static_cast<char*>(p);
}

static double read_all(const char* p, size_t bytes) {
  __m512 s[8] = {};
  for (size_t i = 0; i < bytes; i += 512)
#pragma GCC unroll 8
    for (int j = 0; j < 8; ++j) s[j] = _mm512_add_ps(s[j], _mm512_load_ps(p + i + j * 64));
  for (auto& x : s) sink += _mm512_reduce_add_ps(x);
  return 0;
}

int main(int argc, char** argv) {
  std::vector<int> list = cores();
  bool tiles = syscall(SYS_arch_prctl, 0x1023, 18) == 0;
  std::printf("| threads | fma512 GFLOP/s | fma256 | bf16 dot | tiles | read 2 GiB GB/s | read 256 MiB again | region us | alternating us |\n"
              "|---|---|---|---|---|---|---|---|---|\n");
  constexpr size_t big = size_t(2) << 30, small = size_t(256) << 20;
  char* memory = pages(big);
#pragma omp parallel for num_threads(int(list.size())) schedule(static)
  for (size_t i = 0; i < big; i += 2 << 20) std::memset(memory + i, 0, 2 << 20);
  for (int at = 1; at < argc; ++at) {
    int threads = std::min(std::atoi(argv[at]), int(list.size()));
    double rate[4] = {}, gb[2] = {}, region = 0;
#pragma omp parallel num_threads(threads) reduction(+ : rate[:4])
    {
      pin(list[size_t(omp_get_thread_num())]);
#pragma omp barrier
      rate[0] += fma512(0.2);
#pragma omp barrier
      rate[1] += fma256(0.2);
#pragma omp barrier
      rate[2] += dpbf16(0.2);
#pragma omp barrier
      if (tiles) rate[3] += amx(0.2);
    }
    for (int which = 0; which < 2; ++which) {
      size_t bytes = which ? small : big, part = bytes / size_t(threads) / 4096 * 4096;
      int rounds = which ? 8 : 2;
      double best = 1e9;
      for (int r = 0; r < rounds; ++r) {
        double start = now();
#pragma omp parallel num_threads(threads)
        read_all(memory + part * size_t(omp_get_thread_num()), part);
        best = std::min(best, now() - start);
      }
      gb[which] = double(part) * threads / best / 1e9;
    }
    constexpr int regions = 1000;
    double start = now();
    for (int r = 0; r < regions; ++r) {
#pragma omp parallel num_threads(threads)
      asm volatile("" ::: "memory");
    }
    region = (now() - start) / regions * 1e6;
    start = now();
    for (int r = 0; r < regions; ++r) {
#pragma omp parallel num_threads(r % 2 ? threads : (threads + 1) / 2)
      asm volatile("" ::: "memory");
    }
    double alternating = (now() - start) / regions * 1e6;
    std::printf("| %d | %.0f | %.0f | %.0f | %.0f | %.1f | %.1f | %.1f | %.1f |\n", threads, rate[0], rate[1], rate[2],
                rate[3], gb[0], gb[1], region, alternating);
    std::fflush(stdout);
  }
  return sink == 1.5f;
}
