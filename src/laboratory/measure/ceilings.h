// Measured limits of this CPU for rooflines: memory bandwidth, and the matmul rate of its library.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/dtype.h"
#include "stats/samples.h"

namespace crest {

struct Bandwidth {
  std::string kind;  // "read" or "copy"
  // "DRAM": buffers of at least four times the last-level cache. "cache or DRAM": unknown cache
  // size, or too little memory for such buffers.
  std::string level;
  int64_t buffer_bytes = 0;  // per buffer (copy uses two)
  int threads = 0;
  Samples seconds;              // per pass
  double bytes_per_second = 0;  // median; a copy counts reads and writes (as STREAM does)
};

struct BandwidthOptions {
  int threads = 0;           // 0 = usable_threads()
  int64_t buffer_bytes = 0;  // 0 = max(256 MiB, 4 x cache), at most an eighth of the available memory
  StoppingRule rule = {.warmup = 1, .min_samples = 7, .max_samples = 50, .max_seconds = 1, .target_relative_ci = 0.02};
};

Bandwidth measure_read_bandwidth(const BandwidthOptions& options = {});
Bandwidth measure_copy_bandwidth(const BandwidthOptions& options = {});

// c[m, n] = a[m, k] b[k, n], all row-major and of one type (f32, bf16 or f16), accumulated in
// float.
struct GemmProblem {
  DType type = DType::f32;
  int64_t m = 0, n = 0, k = 0;
  const void* a = nullptr;
  const void* b = nullptr;
  void* c = nullptr;
};
// Prepares a problem (primitive, workspace) and returns a function to run it, empty for an
// unsupported type.
struct GemmFactory : std::function<std::function<void()>(const GemmProblem&)> {
  using function::function;
  double operand_rounding = 0;  // relative rounding of operands by the kernel: 2^-11 for TF32
};

struct GemmRate {
  DType type = DType::f32;
  int64_t m = 0, n = 0, k = 0;  // of the fastest problem
  Samples seconds;              // per multiplication
  double flops_per_second = 0;  // 2 m n k / median
};

struct GemmSize {
  int64_t m, n, k;
};

// The best rate over `sizes` (default: GPT-2-like and square), on random normal data. Each result
// is compared with float64 at sampled positions, so a broken library is never reported as fast: an
// error names the position. flops_per_second = 0 if the factory supports no type.
GemmRate measure_gemm_rate(
    DType type, const GemmFactory& factory, const std::vector<GemmSize>& sizes = {},
    const StoppingRule& rule = {
        .warmup = 2, .min_samples = 7, .max_samples = 50, .max_seconds = 1.5, .target_relative_ci = 0.02});

}  // namespace crest
