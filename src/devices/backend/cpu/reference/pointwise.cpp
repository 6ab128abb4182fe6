// Pointwise operations: one function an operation, shared by the fused interpreter.
#include <cmath>
#include <numbers>
#include <string_view>

#include "backend/cpu/reference/kernels.h"
#include "backend/cpu/reference/tensor.h"
#include "core/error.h"
#include "program/op.h"

namespace crest::reference {

static const double root = std::sqrt(2 / std::numbers::pi);
static constexpr double cubic = 0.044715;

static double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

static double gelu(double x) { return x / 2 * (1 + std::tanh(root * (x + cubic * x * x * x))); }

static double gelu_slope(double x) {
  double t = std::tanh(root * (x + cubic * x * x * x));
  return (1 + t) / 2 + x / 2 * (1 - t * t) * root * (1 + 3 * cubic * x * x);
}

static double gelu_erf(double x) { return x / 2 * std::erfc(-x / std::numbers::sqrt2); }

static double gelu_erf_slope(double x) {
  return std::erfc(-x / std::numbers::sqrt2) / 2 + x * std::exp(-x * x / 2) / std::sqrt(2 * std::numbers::pi);
}

static double silu_slope(double x) {
  double s = sigmoid(x);
  return s * (1 + x * (1 - s));
}

Pointwise pointwise_function(const char* op) {
  struct Entry {
    std::string_view op;
    Pointwise f;
  };
  static const Entry table[] = {
      {"add", [](const double* x, double) { return x[0] + x[1]; }},
      {"mul", [](const double* x, double) { return x[0] * x[1]; }},
      {"scale", [](const double* x, double value) { return x[0] * value; }},
      {"add_scalar", [](const double* x, double value) { return x[0] + value; }},
      {"tanh", [](const double* x, double) { return std::tanh(x[0]); }},
      {"tanh_grad", [](const double* x, double) { return x[0] * (1 - x[1] * x[1]); }},
      {"gelu", [](const double* x, double) { return gelu(x[0]); }},
      {"gelu_grad", [](const double* x, double) { return x[0] * gelu_slope(x[1]); }},
      {"gelu_erf", [](const double* x, double) { return gelu_erf(x[0]); }},
      {"gelu_erf_grad", [](const double* x, double) { return x[0] * gelu_erf_slope(x[1]); }},
      {"silu", [](const double* x, double) { return x[0] * sigmoid(x[0]); }},
      {"silu_grad", [](const double* x, double) { return x[0] * silu_slope(x[1]); }},
      {"relu", [](const double* x, double) { return x[0] < 0 ? 0 : x[0]; }},
      {"relu_grad", [](const double* x, double) { return x[1] > 0 ? x[0] : 0; }},
      {"cast", [](const double* x, double) { return x[0]; }},  // storing rounds
  };
  for (const Entry& e : table)
    if (e.op == op) return e.f;
  fail_internal("no pointwise function for '" + std::string(op) + "'");
}

static void pointwise(const KernelCall& c) {
  Pointwise f = pointwise_function(c.instr.op->name);
  double value = c.instr.attrs.number("value", 0.0), x[2] = {};
  Tensor y = output(c, 0);
  size_t inputs = c.instr.in.size();
  for (int64_t e = 0; e < y.numel(); ++e) {
    for (size_t i = 0; i < inputs; ++i) x[i] = input(c, i)[e];
    y.set(e, f(x, value));
  }
}

#define CREST_POINTWISE_KERNEL(op, inputs, outputs) \
  void op(const KernelCall& c) { pointwise(c); }
CREST_POINTWISE_OPS(CREST_POINTWISE_KERNEL)
CREST_POINTWISE_KERNEL(cast, , )
#undef CREST_POINTWISE_KERNEL

}  // namespace crest::reference
