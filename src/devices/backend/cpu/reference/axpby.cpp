// x = a x + b y z, square roots, and a matrix of norm one.
#include <cmath>

#include "backend/cpu/reference/kernels.h"
#include "backend/cpu/reference/tensor.h"
#include "core/step_factor.h"
#include "ops/index.h"

namespace crest::reference {

static double factor(const KernelCall& c, const char* number, const char* by) {
  const Attrs& a = c.instr.attrs;
  StepFactor f = a.has(by) ? *parse_step_factor(a.text(by)) : StepFactor::one;
  return a.number(number, 0.0) * step_factor(f, std::log(a.number("beta", 0.0)), scalars(c, in::axpby::scalars));
}

void axpby(const KernelCall& c) {
  const Scalars& s = scalars(c, in::axpby::scalars);
  if (s.found_inf) return;
  const Attrs& attrs = c.instr.attrs;
  double a = factor(c, "a", "a_by") - s.lr * attrs.number("decay", 0.0), b = factor(c, "b", "b_by");
  constexpr double none = -0.0;  // none + x is x also for -0
  double constant = attrs.number("c", none);
  bool divide = attrs.integer("divide", 0) != 0, weights = attrs.integer("weights", 0) != 0;
  Tensor x = input(c, in::axpby::x), y = input(c, in::axpby::y), z = input(c, in::axpby::z);
  for (int64_t e = 0; e < x.numel(); ++e) {
    double other = y ? y[e] : 0;
    if (z) other = divide ? other / z[e] : other * z[e];
    double r = (a == 0 ? none : a * x[e]) + (y ? b * other : none) + constant;
    weights ? output(c, out::axpby::x).set_weight(e, r) : output(c, out::axpby::x).set(e, r);
  }
}

void sqrt(const KernelCall& c) {
  Tensor x = input(c, in::sqrt::x);
  for (int64_t e = 0; e < x.numel(); ++e) output(c, out::sqrt::y).set(e, std::sqrt(x[e]));
}

void unit_norm(const KernelCall& c) {
  Tensor x = input(c, in::unit_norm::x);
  double squares = 0;
  for (int64_t e = 0; e < x.numel(); ++e) squares += x[e] * x[e];
  double norm = std::sqrt(squares) + c.instr.attrs.number("eps");
  for (int64_t e = 0; e < x.numel(); ++e) output(c, out::unit_norm::y).set(e, x[e] / norm);
}

}  // namespace crest::reference
