#include "measure/ceilings.h"

#include <gtest/gtest.h>

#include "core/error.h"

using namespace crest;

namespace {
const StoppingRule quick{.warmup = 0, .min_samples = 3, .max_samples = 3, .max_seconds = 1, .target_relative_ci = 0};

// Straightforward product; `wrong` spoils it.
GemmFactory reference(float wrong = 0) {
  return [wrong](const GemmProblem& p) -> std::function<void()> {
    if (p.type == DType::f16) return {};
    return [p, wrong] {
      for (int64_t i = 0; i < p.m; ++i)
        for (int64_t j = 0; j < p.n; ++j) {
          double sum = wrong;
          for (int64_t l = 0; l < p.k; ++l)
            sum += load_element(p.a, p.type, i * p.k + l) * load_element(p.b, p.type, l * p.n + j);
          store_element(p.c, p.type, i * p.n + j, sum);
        }
    };
  };
}
}  // namespace

TEST(Ceilings, BandwidthIsPlausible) {
  BandwidthOptions options{.threads = 2, .buffer_bytes = 32 << 20, .rule = quick};
  for (const Bandwidth& b : {measure_read_bandwidth(options), measure_copy_bandwidth(options)}) {
    EXPECT_EQ(b.threads, 2);
    EXPECT_EQ(b.buffer_bytes, 32 << 20);
    EXPECT_EQ(b.seconds.count(), 3u);
    double moved = b.bytes_per_second * b.seconds.median();
    EXPECT_NEAR(moved / double(b.buffer_bytes), b.kind == std::string("copy") ? 2 : 1, 1e-9);
    EXPECT_LT(b.bytes_per_second, 1e13) << b.kind;  // an optimized-away loop would give far more
  }
}

TEST(Ceilings, SmallBuffersAreNotCalledDram) {
  BandwidthOptions options{.threads = 1, .buffer_bytes = 16384, .rule = quick};
  EXPECT_EQ(measure_read_bandwidth(options).level, "cache or DRAM");
}

TEST(Ceilings, GemmRateTakesTheFastestSize) {
  for (DType type : {DType::f32, DType::bf16}) {
    GemmRate r = measure_gemm_rate(type, reference(), {{8, 8, 8}, {40, 30, 50}}, quick);
    EXPECT_EQ(r.type, type);
    EXPECT_GT(r.flops_per_second, 0);
    EXPECT_DOUBLE_EQ(r.flops_per_second, 2.0 * double(r.m * r.n * r.k) / r.seconds.median());
  }
  EXPECT_EQ(measure_gemm_rate(DType::f16, reference(), {{8, 8, 8}}, quick).flops_per_second, 0) << "not supported";
}

TEST(Ceilings, WrongProductsAreNotARate) {
  EXPECT_THROW(measure_gemm_rate(DType::f32, reference(0.1f), {{16, 16, 16}}, quick), Error);
  EXPECT_THROW(measure_gemm_rate(DType::bf16, reference(2.0f), {{16, 16, 16}}, quick), Error);
  auto does_nothing = [](const GemmProblem&) { return [] {}; };
  EXPECT_THROW(measure_gemm_rate(DType::f32, does_nothing, {{16, 16, 16}}, quick), Error);
}
