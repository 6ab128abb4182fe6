#include "measure/ceilings.h"

#include <fmt/format.h>
#include <omp.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <memory>

#include "core/error.h"
#include "core/random.h"
#include "core/text.h"
#include "host/environment.h"
#include "host/memory.h"

namespace crest {

namespace {

// 64 bytes; the compiler maps it to the target's vectors.
typedef uint64_t Line __attribute__((vector_size(64)));

struct Part {
  int64_t begin, end;
};
Part part_of(int64_t count, int part, int parts) { return {count * part / parts, count * (part + 1) / parts}; }

struct FreeDeleter {
  void operator()(void* p) const { std::free(p); }
};
using Buffer = std::unique_ptr<Line[], FreeDeleter>;

// Random data, written by the threads that read it later, so its pages are near them.
Buffer random_buffer(int64_t lines, int threads) {
  constexpr size_t huge_page = 2 << 20;
  size_t bytes = (size_t(lines) * sizeof(Line) + huge_page - 1) / huge_page * huge_page;
  auto* memory = static_cast<Line*>(std::aligned_alloc(huge_page, bytes));
  if (!memory) fail(fmt::format("cannot allocate {}", format_bytes(double(bytes))), "bandwidth");
  madvise(memory, bytes, MADV_HUGEPAGE);  // a hint; otherwise address translation dominates
#pragma omp parallel num_threads(threads)
  {
    Part part = part_of(lines, omp_get_thread_num(), omp_get_num_threads());
    for (int64_t i = part.begin; i < part.end; ++i)
      for (int j = 0; j < 8; ++j) memory[i][j] = mix(uint64_t(i * 8 + j));
  }
  return Buffer(memory);
}

// XOR of all lines: cheap enough to be limited by memory, and dependent on every byte. Four streams
// with prefetch keep more reads in flight than the hardware prefetcher, which stops at page ends.
uint64_t read_all(const Line* data, int64_t lines, int threads) {
  uint64_t total = 0;
#pragma omp parallel num_threads(threads) reduction(^ : total)
  {
    Part part = part_of(lines, omp_get_thread_num(), omp_get_num_threads());
    int64_t stream = (part.end - part.begin) / 4;
    Line sums[4] = {};
    for (int64_t i = 0; i < stream; ++i)
      for (int s = 0; s < 4; ++s) {
        const Line* line = data + part.begin + s * stream + i;
        __builtin_prefetch(line + 16);
        sums[s] ^= *line;
      }
    for (int64_t i = part.begin + 4 * stream; i < part.end; ++i) sums[0] ^= data[i];
    sums[0] ^= sums[1] ^ sums[2] ^ sums[3];
    for (int j = 0; j < 8; ++j) total ^= sums[0][j];
  }
  return total;
}

void copy_all(Line* to, const Line* from, int64_t lines, int threads) {
#pragma omp parallel num_threads(threads)
  {
    Part part = part_of(lines, omp_get_thread_num(), omp_get_num_threads());
    std::memcpy(to + part.begin, from + part.begin, size_t(part.end - part.begin) * sizeof(Line));
  }
}

Bandwidth prepare(const char* kind, const BandwidthOptions& options) {
  Bandwidth b;
  b.kind = kind;
  b.threads = options.threads > 0 ? options.threads : usable_threads();
  int64_t cache = read_environment().last_level_cache_bytes;
  b.buffer_bytes = options.buffer_bytes;
  if (b.buffer_bytes <= 0)
    b.buffer_bytes = std::min(std::max<int64_t>(256 << 20, 4 * cache), available_memory_bytes() / 8);
  b.buffer_bytes = std::max<int64_t>(4096, b.buffer_bytes / 4096 * 4096);
  b.level = cache > 0 && b.buffer_bytes >= 4 * cache ? "DRAM" : "cache or DRAM";
  return b;
}

}  // namespace

Bandwidth measure_read_bandwidth(const BandwidthOptions& options) {
  Bandwidth b = prepare("read", options);
  int64_t lines = b.buffer_bytes / int64_t(sizeof(Line));
  Buffer data = random_buffer(lines, b.threads);
  static std::atomic<uint64_t> sink;  // keeps the sum alive
  b.seconds = measure([&] { return time_once([&] { sink = read_all(data.get(), lines, b.threads); }); }, options.rule);
  b.bytes_per_second = double(b.buffer_bytes) / b.seconds.median();
  return b;
}

Bandwidth measure_copy_bandwidth(const BandwidthOptions& options) {
  Bandwidth b = prepare("copy", options);
  int64_t lines = b.buffer_bytes / int64_t(sizeof(Line));
  Buffer from = random_buffer(lines, b.threads), to = random_buffer(lines, b.threads);
  for (int64_t i = 0; i < lines; i += 64) to[size_t(i)] ^= Line{} + 1;  // differs from the source in every page
  b.seconds =
      measure([&] { return time_once([&] { copy_all(to.get(), from.get(), lines, b.threads); }); }, options.rule);
  if (read_all(to.get(), lines, b.threads) != read_all(from.get(), lines, b.threads))
    fail("the copy differs from its source", "bandwidth", "The memory of this machine is unreliable.");
  b.bytes_per_second = 2 * double(b.buffer_bytes) / b.seconds.median();
  return b;
}

namespace {

std::vector<std::byte> random_matrix(DType type, int64_t count, uint64_t stream) {
  std::vector<std::byte> data(size_t(count) * size_of(type));
  // One normally distributed block, repeated with an odd period: fast, and random enough for power
  // and rounding.
  constexpr int64_t period = 65537;
  std::vector<float> block(size_t(std::min(count, period)));
  for (size_t i = 0; i < block.size(); ++i) block[i] = float(normal(7, stream, i));
  for (int64_t i = 0; i < count; ++i) store_element(data.data(), type, i, block[size_t(i % period)]);
  return data;
}

// Allowed error. The reference uses the same rounded inputs. A sum of k products of standard
// normals has size sqrt(k), and float accumulation in any order has an error far below k eps
// sqrt(k). Then the result is rounded. A kernel that rounds its operands by up to u (uniform,
// independent) adds a standard deviation of u sqrt(2/3 sum x^2); eight of them are allowed.
void check_gemm(const GemmProblem& p, double operand_rounding) {
  double rounding = p.type == DType::bf16 ? 0x1p-8 : p.type == DType::f16 ? 0x1p-11 : 0x1p-24;
  for (uint32_t s = 0; s < 16; ++s) {
    int64_t row = int64_t(random_bits(1, 2, s) % uint64_t(p.m)), col = int64_t(random_bits(1, 3, s) % uint64_t(p.n));
    double want = 0, magnitude = 0, squares = 0;
    for (int64_t i = 0; i < p.k; ++i) {
      double x = load_element(p.a, p.type, row * p.k + i) * load_element(p.b, p.type, i * p.n + col);
      want += x, magnitude += std::abs(x), squares += x * x;
    }
    double got = load_element(p.c, p.type, row * p.n + col);
    double tolerance =
        2 * rounding * std::abs(want) + 1e-6 * magnitude + 8 * operand_rounding * std::sqrt(2.0 / 3 * squares);
    if (!(std::abs(got - want) <= tolerance))
      fail(fmt::format("the {} matrix multiplication {} x {} x {} gives {} instead of {} at row {}, column {}",
                       name(p.type), p.m, p.n, p.k, got, want, row, col),
           "GEMM rate", "The library or the machine computes wrong results; its rate is meaningless.");
  }
}

}  // namespace

GemmRate measure_gemm_rate(DType type, const GemmFactory& factory, const std::vector<GemmSize>& sizes,
                           const StoppingRule& rule) {
  static const std::vector<GemmSize> usual = {{1024, 3072, 768}, {1024, 768, 3072}, {2048, 2048, 2048}};
  GemmRate best;
  best.type = type;
  for (auto& size : sizes.empty() ? usual : sizes) {
    auto a = random_matrix(type, size.m * size.k, 1), b = random_matrix(type, size.k * size.n, 2);
    std::vector<std::byte> c(size_t(size.m * size.n) * size_of(type), std::byte(0xff));  // NaN until written
    GemmProblem problem{type, size.m, size.n, size.k, a.data(), b.data(), c.data()};
    auto run = factory(problem);
    if (!run) continue;
    run();
    check_gemm(problem, factory.operand_rounding);
    Samples seconds = measure([&] { return time_once(run); }, rule);
    double rate = 2.0 * double(size.m) * double(size.n) * double(size.k) / seconds.median();
    if (rate <= best.flops_per_second) continue;
    best.m = size.m, best.n = size.n, best.k = size.k;
    best.seconds = std::move(seconds);
    best.flops_per_second = rate;
  }
  return best;
}

}  // namespace crest
