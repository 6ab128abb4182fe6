// Linear layers against double loops. Tolerance: the products of k terms are summed in float in
// some order, so the error is at most k 2^-24 sum|a||b| and in practice near its square root; plus
// rounding of the result to its storage.
#include <cmath>

#include "backend/gemm_harness.h"

using namespace crest;

namespace {

struct Size {
  int64_t rows, n, k;
};
const Size sizes[] = {{1, 7, 5}, {3, 17, 33}, {64, 48, 96}, {130, 257, 70}, {256, 1500, 1024}, {24, 3500, 64}};

// About forty of `n` columns, different ones for each `turn`: the checked columns of a row.
std::vector<int64_t> some_of(int64_t n, int64_t turn) {
  std::vector<int64_t> list;
  for (int64_t step = 1 + n / 40, i = turn % step; i < n; i += step) list.push_back(i);
  return list;
}

double gelu_of(double x) { return x / 2 * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x))); }

// sum of a_i b_i with the bound of its float error.
struct Dot {
  double value = 0, magnitude = 0;
  void add(double x) { value += x, magnitude += std::abs(x); }
  double bound(DType stored, double extra = 0) const {
    return 8 * 0x1p-24 * magnitude + 1.01 * roundoff(stored) * (std::abs(value) + extra) + 0x1p-24;
  }
};

void check_forward(DType t, DType bias_type, bool bias, bool gelu, bool keep, const Device& device) {
  for (auto [rows, n, k] : sizes) {
    Array x(t, {rows, k}), w(t, {n, k}, 1), b(bias_type, {n}), y(t, {rows, n}), h(t, {rows, n});
    x.random(1), w.random(2, 0.3), b.random(3);
    KernelRun r;
    r.op = gelu ? "linear_gelu" : "linear";
    r.in = {&x, &w};
    if (bias) r.in.push_back(&b);
    r.out = {&y};
    if (gelu && keep) r.out.push_back(&h);
    r.attrs.set("keep", keep);
    r.device = device;
    r.run();
    ASSERT_EQ(r.rejected, "");
    const std::vector<double> of_x = x.values(), of_w = w.values();
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j : some_of(n, i)) {
        Dot d;
        for (int64_t q = 0; q < k; ++q) d.add(of_x[size_t(i * k + q)] * of_w[size_t(j * k + q)]);
        if (bias) d.add(b.at(j));
        double bound = d.bound(t);
        std::string where = std::string(name(t)) + " " + std::to_string(i) + "," + std::to_string(j);
        if (!gelu) {
          ASSERT_NEAR(y.at(i * n + j), d.value, bound) << where;
        }
        if (gelu && keep) {
          ASSERT_NEAR(h.at(i * n + j), d.value, bound) << where;
        }
        // |gelu'| < 1.13, and the activation is rounded once more.
        if (gelu) {
          ASSERT_NEAR(y.at(i * n + j), gelu_of(d.value), 1.13 * bound + 1.01 * roundoff(t) * std::abs(d.value))
              << where;
        }
      }
  }
}

TEST(GemmLinear, Forward) {
  for (DType t : float_types())
    for (bool bias : {false, true}) check_forward(t, t, bias, false, false, this_cpu(2));
}
TEST(GemmLinear, ForwardWithFloatBiasOfHalfLayers) {
  for (DType t : {DType::bf16, DType::f16}) check_forward(t, DType::f32, true, false, false, this_cpu(1));
}
TEST(GemmLinear, Bf16WithoutNativeSupport) {
  check_forward(DType::bf16, DType::bf16, true, false, false, cpu_without_bf16(2));
  check_forward(DType::bf16, DType::bf16, true, true, true, cpu_without_bf16(2));
}
TEST(GemmLinear, Gelu) {
  for (DType t : float_types())
    for (bool keep : {false, true}) check_forward(t, t, true, true, keep, this_cpu(2));
}

void check_dx(DType t, const Device& device) {
  for (auto [rows, n, k] : sizes) {
    Array dy(t, {rows, n}), w(t, {n, k}), dx(t, {rows, k}, 3);
    dy.random(1), w.random(2);
    KernelRun r;
    r.op = "linear_dx", r.in = {&dy, &w}, r.out = {&dx}, r.device = device;
    r.run();
    ASSERT_EQ(r.rejected, "");
    const std::vector<double> of_dy = dy.values(), of_w = w.values();
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t q : some_of(k, i)) {
        Dot d;
        for (int64_t j = 0; j < n; ++j) d.add(of_dy[size_t(i * n + j)] * of_w[size_t(j * k + q)]);
        ASSERT_NEAR(dx.at(i * k + q), d.value, d.bound(t)) << name(t) << " " << i << "," << q;
      }
  }
}
TEST(GemmLinear, InputGradient) {
  for (DType t : float_types()) check_dx(t, this_cpu(2));
  check_dx(DType::bf16, cpu_without_bf16(2));
}
// For the long sums of a language model's head, another primitive runs.
TEST(GemmLinear, InputGradientOfALongReduction) {
  for (DType t : float_types()) {
    int64_t rows = 5, n = 9000, k = 40;
    Array dy(t, {rows, n}), w(t, {n, k}), dx(t, {rows, k});
    dy.random(1), w.random(2);
    KernelRun r;
    r.op = "linear_dx", r.in = {&dy, &w}, r.out = {&dx};
    r.run();
    const std::vector<double> of_dy = dy.values(), of_w = w.values();
    for (int64_t i = 0; i < rows * k; ++i) {
      Dot d;
      for (int64_t j = 0; j < n; ++j) d.add(of_dy[size_t(i / k * n + j)] * of_w[size_t(j * k + i % k)]);
      ASSERT_NEAR(dx.at(i), d.value, d.bound(t)) << name(t) << " " << i;
    }
  }
}

void check_dw(DType t, DType out_type, bool accumulate, const Device& device) {
  for (auto [rows, n, k] : sizes) {
    Array dy(t, {rows, n}), x(t, {rows, k}), dw(out_type, {n, k});
    dy.random(1), x.random(2);
    std::vector<double> before(size_t(n * k), 0);
    if (accumulate) {
      dw.random(3);
      for (int64_t i = 0; i < n * k; ++i) before[size_t(i)] = dw.at(i);
    }
    KernelRun r;
    r.op = "linear_dw", r.in = {&dy, &x}, r.out = {&dw}, r.device = device;
    if (accumulate) r.in.push_back(&dw);
    r.run();
    ASSERT_EQ(r.rejected, "");
    const std::vector<double> of_dy = dy.values(), of_x = x.values();
    for (int64_t j = 0; j < n; ++j)
      for (int64_t q : some_of(k, j)) {
        Dot d;
        for (int64_t i = 0; i < rows; ++i) d.add(of_dy[size_t(i * n + j)] * of_x[size_t(i * k + q)]);
        d.add(before[size_t(j * k + q)]);
        ASSERT_NEAR(dw.at(j * k + q), d.value, d.bound(out_type)) << name(t) << " " << j << "," << q;
      }
  }
}
TEST(GemmLinear, WeightGradient) {
  for (DType t : float_types())
    for (DType out : {DType::f32, t})
      for (bool accumulate : {false, true}) check_dw(t, out, accumulate, this_cpu(2));
  for (bool accumulate : {false, true}) check_dw(DType::bf16, DType::f32, accumulate, cpu_without_bf16(2));
}

TEST(GemmLinear, DoubleAndMixedTypesAreRefusedWithAReason) {
  Array x(DType::f64, {2, 3}), w(DType::f64, {4, 3}), y(DType::f64, {2, 4}), half(DType::bf16, {4, 3}),
      x32(DType::f32, {2, 3});
  KernelRun r;
  r.op = "linear", r.in = {&x, &w}, r.out = {&y};
  r.run();
  EXPECT_NE(r.rejected.find("f64"), std::string::npos) << r.rejected;
  r.in = {&x32, &half};
  r.run();
  EXPECT_NE(r.rejected.find("bf16"), std::string::npos) << r.rejected;
}

}  // namespace
