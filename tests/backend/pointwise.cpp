// Pointwise operations, fused bodies and dropout against the formulas in double precision.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "core/random.h"
#include "core/scalars.h"
#include "fast_call.h"

using namespace crest;
using namespace crest::testing_call;

namespace {

using F = std::function<double(double, double)>;
double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
const double gelu_c = std::sqrt(2 / M_PI);
double gelu(double x) { return x / 2 * (1 + std::tanh(gelu_c * (x + 0.044715 * x * x * x))); }
double gelu_slope(double x) {
  double t = std::tanh(gelu_c * (x + 0.044715 * x * x * x));
  return (1 + t) / 2 + x / 2 * (1 - t * t) * gelu_c * (1 + 3 * 0.044715 * x * x);
}

double gelu_erf(double x) { return x / 2 * std::erfc(-x / std::sqrt(2.0)); }
double gelu_erf_slope(double x) {
  return std::erfc(-x / std::sqrt(2.0)) / 2 + x * std::exp(-x * x / 2) / std::sqrt(2 * M_PI);
}

struct Op {
  const char* name;
  int inputs;
  F f;
};
const std::vector<Op>& ops() {
  static const std::vector<Op> list = {
      {"add", 2, [](double a, double b) { return a + b; }},
      {"mul", 2, [](double a, double b) { return a * b; }},
      {"scale", 1, [](double a, double) { return a * 0.75; }},
      {"add_scalar", 1, [](double a, double) { return a + 0.75; }},
      {"tanh", 1, [](double a, double) { return std::tanh(a); }},
      {"tanh_grad", 2, [](double a, double b) { return a * (1 - b * b); }},
      {"gelu", 1, [](double a, double) { return gelu(a); }},
      {"gelu_grad", 2, [](double a, double b) { return a * gelu_slope(b); }},
      {"gelu_erf", 1, [](double a, double) { return gelu_erf(a); }},
      {"gelu_erf_grad", 2, [](double a, double b) { return a * gelu_erf_slope(b); }},
      {"silu", 1, [](double a, double) { return a * sigmoid(a); }},
      {"silu_grad", 2, [](double a, double b) { return a * sigmoid(b) * (1 + b * (1 - sigmoid(b))); }},
      {"relu", 1, [](double a, double) { return a < 0 ? 0 : a; }},
      {"relu_grad", 2, [](double a, double b) { return b > 0 ? a : 0; }},
  };
  return list;
}

// Rounding of one storage: 2^-24, 2^-9, 2^-12 with a margin for the functions' own errors (vec.h).
double tolerance(DType t) { return t == DType::f32 ? 1e-6 : t == DType::bf16 ? 4e-3 : 6e-4; }

class Pointwise : public testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(Types, Pointwise, testing::Values(DType::f32, DType::bf16, DType::f16),
                         [](const auto& i) { return std::string(name(i.param)); });

TEST_P(Pointwise, EqualsTheFormula) {
  DType t = GetParam();
  for (const Op& op : ops())
    for (int64_t n : {1, 7, 64, 5003}) {
      Call c(op.name);
      auto a = random_values(t, n, 1, 3), b = random_values(t, n, 2, 3);
      c.instr.attrs.set("value", 0.75);
      c.in(t, Shape{n}, a);
      if (op.inputs == 2) c.in(t, Shape{n}, b);
      ValueId y = c.out(t, Shape{n});
      c.run(3);
      std::vector<double> want(static_cast<size_t>(n));
      for (size_t i = 0; i < want.size(); ++i) want[i] = op.f(a[i], b[i]);
      EXPECT_LT(worst(c.read(y), want, 1e-1), 4 * tolerance(t)) << op.name << " " << n;
    }
}

TEST_P(Pointwise, ExtremeArgumentsStayFiniteAndNaNStaysNaN) {
  DType t = GetParam();
  std::vector<double> x = {0.0, -0.0, 1e-3, 200, -200, 6e4, -6e4, NAN};
  std::vector<double> one(x.size(), 1.0);
  for (const Op& op : ops()) {
    std::string name = op.name;
    if (op.inputs == 1 ? (name != "tanh" && name != "gelu" && name != "gelu_erf" && name != "silu")
                       : (name != "gelu_grad" && name != "gelu_erf_grad" && name != "silu_grad"))
      continue;
    Call c(op.name);
    if (op.inputs == 2) c.in(t, Shape{8}, one);
    c.in(t, Shape{8}, x);
    ValueId y = c.out(t, Shape{8});
    c.run();
    auto got = c.read(y);
    EXPECT_TRUE(std::isnan(got[7])) << op.name;
    for (size_t i = 0; i < 7; ++i) {
      double want = op.inputs == 1 ? op.f(x[i], 0) : op.f(1, x[i]);
      if (std::isnan(want)) want = x[i] > 0 ? 1 : 0;  // the formula overflows in double, the limit is known
      EXPECT_NEAR(got[i], want, tolerance(t) * (1 + std::abs(want))) << op.name << " " << x[i];
    }
  }
}

// Adds an instruction to a body.
ValueId body_value(Program& p, DType t, const Shape& shape) {
  auto id = ValueId(p.values.size());
  p.values.push_back({"b" + std::to_string(id), t, shape, {id, 0, shape.contiguous_strides()}});
  return id;
}
ValueId body_op(Program& p, const char* op, std::vector<ValueId> in, DType t, const Shape& shape) {
  Instr i;
  i.op = op_named(op);
  i.in = std::move(in);
  i.out = {body_value(p, t, shape)};
  p.code.push_back(i);
  return i.out[0];
}

// y = gelu(x + u) as `t`, z = (x + u) * u, column sums of y * x onto acc: several outputs, a cast,
// reused values.
TEST_P(Pointwise, FusedBodyWithColumnSums) {
  DType t = GetParam();
  for (int64_t rows : {1, 5, 400}) {
    int64_t cols = 37;
    Shape s{rows, cols}, w{cols};
    auto body = std::make_shared<Program>();
    ValueId x = body_value(*body, t, s), u = body_value(*body, DType::f32, s), acc = body_value(*body, DType::f32, w);
    body->inputs = {x, u, acc};
    ValueId x32 = body_op(*body, "cast", {x}, DType::f32, s);
    ValueId sum = body_op(*body, "add", {x32, u}, DType::f32, s);
    ValueId y32 = body_op(*body, "gelu", {sum}, DType::f32, s);
    ValueId y = body_op(*body, "cast", {y32}, t, s);
    ValueId z = body_op(*body, "mul", {sum, u}, DType::f32, s);
    ValueId product = body_op(*body, "mul", {y32, x32}, DType::f32, s);
    ValueId sums = body_op(*body, "bias_grad", {product, acc}, DType::f32, w);
    body->outputs = {y, z, sums};
    auto xs = random_values(t, rows * cols, 1), us = random_values(DType::f32, rows * cols, 2);
    auto accs = random_values(DType::f32, cols, 3);
    std::vector<double> want_y(xs.size()), want_z(xs.size()), want_sums = accs;
    for (size_t i = 0; i < xs.size(); ++i) {
      want_y[i] = gelu(xs[i] + us[i]), want_z[i] = (xs[i] + us[i]) * us[i];
      want_sums[i % size_t(cols)] += want_y[i] * xs[i];
    }
    std::vector<double> previous;
    for (int threads : {1, 2, 5}) {
      Call c("fused");
      c.instr.body = body;
      c.in(t, s, xs), c.in(DType::f32, s, us), c.in(DType::f32, w, accs);
      ValueId oy = c.out(t, s), oz = c.out(DType::f32, s), os = c.out(DType::f32, w);
      c.run(threads);
      EXPECT_LT(worst(c.read(oy), want_y, 1e-1), 4 * tolerance(t));
      EXPECT_LT(worst(c.read(oz), want_z, 1e-1), 2e-6);
      EXPECT_LT(worst(c.read(os), want_sums, std::sqrt(double(rows))), 2e-6);
      if (!previous.empty()) {
        EXPECT_EQ(previous, c.read(os)) << "depends on the number of threads";
      }
      previous = c.read(os);
    }
  }
}

// Output z overlays input a, read by the instruction after z's.
TEST(Fused, OutputsMayOverlayInputs) {
  Shape s{3000};
  auto body = std::make_shared<Program>();
  ValueId a = body_value(*body, DType::f32, s), b = body_value(*body, DType::f32, s);
  body->inputs = {a, b};
  ValueId z = body_op(*body, "add", {a, b}, DType::f32, s);
  ValueId y = body_op(*body, "mul", {z, a}, DType::f32, s);
  body->outputs = {z, y};
  auto as = random_values(DType::f32, 3000, 1), bs = random_values(DType::f32, 3000, 2);
  Call c("fused");
  c.instr.body = body;
  ValueId ia = c.in(DType::f32, s, as);
  c.in(DType::f32, s, bs);
  c.instr.out.push_back(ia);
  ValueId oy = c.out(DType::f32, s);
  c.run();
  auto got_z = c.read(ia), got_y = c.read(oy);
  for (size_t i = 0; i < as.size(); ++i) {
    EXPECT_FLOAT_EQ(float(got_z[i]), float(as[i] + bs[i]));
    EXPECT_NEAR(got_y[i], (as[i] + bs[i]) * as[i], 1e-6 * (1 + std::abs(got_y[i])));
  }
}

TEST(Fused, UnknownOperationIsRejectedByName) {
  auto body = std::make_shared<Program>();
  ValueId a = body_value(*body, DType::f32, Shape{4});
  body->inputs = {a};
  body->outputs = {body_op(*body, "softmax", {a}, DType::f32, Shape{4})};
  Call c("fused");
  c.instr.body = body;
  c.in(DType::f32, Shape{4}, std::vector<double>(4));
  c.out(DType::f32, Shape{4});
  EXPECT_NE(c.reject_reason().find("softmax"), std::string::npos);
}

TEST_P(Pointwise, BiasGradSumsColumns) {
  DType t = GetParam();
  int64_t rows = 130, cols = 45;
  auto dy = random_values(t, rows * cols, 1), acc = random_values(DType::f32, cols, 2);
  Call c("bias_grad");
  c.in(t, Shape{rows, cols}, dy), c.in(DType::f32, Shape{cols}, acc);
  ValueId db = c.out(DType::f32, Shape{cols});
  c.run();
  for (size_t i = 0; i < dy.size(); ++i) acc[i % size_t(cols)] += dy[i];
  EXPECT_LT(worst(c.read(db), acc, 10), 1e-6);
}

TEST_P(Pointwise, DropoutFollowsTheDocumentedWords) {
  DType t = GetParam();
  Scalars scalars{};
  scalars.seed = 77, scalars.sample_base = 12;
  int64_t samples = 3, size = 20011;
  auto x = random_values(t, samples * size, 1);
  for (double p : {0.1, 0.5, 1.0 / 3}) {
    Call c("dropout");
    c.instr.attrs.set("p", p).set("rng_id", 9);
    c.in(t, Shape{samples, size}, x);
    c.in_struct(scalars);
    ValueId y = c.out(t, Shape{samples, size});
    c.run(2);
    auto got = c.read(y);
    std::vector<double> want(x.size());
    for (int64_t i = 0; i < samples * size; ++i) {
      uint32_t word = random_bits(77, dropout_stream(uint64_t(12 + i / size), 9), uint64_t(i % size));
      want[size_t(i)] = uniform(word) >= p ? x[size_t(i)] / (1 - p) : 0;
    }
    EXPECT_LT(worst(got, want, 1e-2), tolerance(t)) << p;
    for (size_t i = 0; i < want.size(); ++i)
      if (want[i] == 0) {
        ASSERT_EQ(got[i], 0);
      }
  }
}

}  // namespace
