#include <cmath>

#include "backend/gemm_harness.h"

using namespace crest;

namespace {

struct MatmulCase {
  int64_t batch, heads_a, heads_b, reduce, m, n, k;
};
const MatmulCase cases[] = {{1, 1, 1, 0, 5, 7, 3},    {2, 4, 4, 0, 33, 17, 64}, {2, 6, 2, 0, 64, 64, 16},
                            {1, 4, 1, 0, 1, 40, 24},  {2, 6, 6, 2, 31, 20, 9},  {1, 4, 4, 1, 130, 70, 90},
                            {3, 2, 2, 0, 100, 1, 20}, {1, 1, 1, 0, 1, 1, 1}};

// Element (b, h, i, j) of the view.
double at(Array& a, int64_t b, int64_t h, int64_t i, int64_t j) {
  const Shape& s = a.view_strides;
  return a.at(a.view_offset + b * s[0] + h * s[1] + i * s[2] + j * s[3]);
}

// [B,H,M,N] as a view of [B,M,H*N + 5], three elements in: heads interleaved as in a joined qkv.
Array interleaved(DType t, int64_t b, int64_t h, int64_t m, int64_t n) {
  int64_t width = h * n + 5;
  Array a(t, {b, m, width});
  a.view_shape = {b, h, m, n}, a.view_strides = {m * width, n, width, 1}, a.view_offset = 3;
  return a;
}

void check(DType t, bool ta, bool tb, bool views, const Device& device) {
  for (auto [batch, heads_a, heads_b, reduce, m, n, k] : cases) {
    auto operand = [&, b = batch](int64_t h, int64_t r, int64_t c) {
      return views ? interleaved(t, b, h, r, c) : Array(t, {b, h, r, c});
    };
    int64_t heads_c = reduce ? reduce : heads_a;
    Array a = operand(heads_a, ta ? k : m, ta ? m : k), b = operand(heads_b, tb ? n : k, tb ? k : n);
    Array c(t, {batch, heads_c, m, n});
    a.random(1), b.random(2);
    KernelRun r;
    r.op = "matmul", r.in = {&a, &b}, r.out = {&c}, r.device = device;
    r.attrs.set("transpose_a", ta).set("transpose_b", tb);
    if (reduce) r.attrs.set("reduce", reduce);
    r.run();
    ASSERT_EQ(r.rejected, "");
    int64_t terms = heads_a / heads_c;
    for (int64_t x = 0; x < batch; ++x)
      for (int64_t h = 0; h < heads_c; ++h)
        for (int64_t i = 0; i < m; ++i)
          for (int64_t j = 0; j < n; ++j) {
            double value = 0, magnitude = 0;
            for (int64_t head = h * terms; head < (h + 1) * terms; ++head)
              for (int64_t q = 0; q < k; ++q) {
                double p =
                    at(a, x, head, ta ? q : i, ta ? i : q) * at(b, x, head * heads_b / heads_a, tb ? j : q, tb ? q : j);
                value += p, magnitude += std::abs(p);
              }
            // Sums in float, one rounding to the storage.
            ASSERT_NEAR(at(c, x, h, i, j), value, 8 * 0x1p-24 * magnitude + 1.01 * roundoff(t) * std::abs(value))
                << name(t) << " " << x << "," << h << "," << i << "," << j << " of " << m << "x" << n << "x" << k;
          }
  }
}

TEST(GemmMatmul, EveryOrientation) {
  for (DType t : float_types())
    for (bool ta : {false, true})
      for (bool tb : {false, true}) check(t, ta, tb, false, this_cpu(2));
}
TEST(GemmMatmul, Views) {
  for (DType t : float_types())
    for (bool ta : {false, true})
      for (bool tb : {false, true}) check(t, ta, tb, true, this_cpu(2));
}
TEST(GemmMatmul, OneThreadAndManyThreads) {
  for (DType t : float_types())
    for (int threads : {1, 5}) check(t, false, true, true, this_cpu(threads));
}
TEST(GemmMatmul, Bf16WithoutNativeSupport) { check(DType::bf16, false, true, true, cpu_without_bf16(2)); }

TEST(GemmMatmul, TransposedViews) {
  // Columns dense instead of rows: a view made by swapping the last two dimensions.
  Array a(DType::f32, {1, 1, 6, 4}), b(DType::f32, {1, 1, 6, 5}), c(DType::f32, {1, 1, 4, 5});
  a.random(1), b.random(2);
  a.view_shape = {1, 1, 4, 6}, a.view_strides = {24, 24, 1, 4};
  KernelRun r;
  r.op = "matmul", r.in = {&a, &b}, r.out = {&c};
  r.run();
  ASSERT_EQ(r.rejected, "");
  for (int64_t i = 0; i < 4; ++i)
    for (int64_t j = 0; j < 5; ++j) {
      double want = 0;
      for (int64_t q = 0; q < 6; ++q) want += a.at(q * 4 + i) * b.at(q * 5 + j);
      EXPECT_NEAR(c.at(i * 5 + j), want, 1e-5);
    }
}

}  // namespace
