// x = a x + b y z, square roots, and a matrix of norm one.
#include <cmath>

#include "backend/cpu/reference/kernels.h"
#include "backend/cpu/reference/tensor.h"
#include "core/step_factor.h"

namespace crest::reference {

static double factor(const KernelCall& c, const char* number, const char* by) {
  const Attrs& a = c.instr.attrs;
  StepFactor f = a.has(by) ? *parse_step_factor(a.word(by)) : StepFactor::one;
  return a.number(number, 0.0) * step_factor(f, std::log(a.number("beta", 0.0)), scalars(c, 0));
}

void axpby(const KernelCall& c) {
  const Scalars& s = scalars(c, 0);
  if (s.found_inf) return;
  const Attrs& attrs = c.instr.attrs;
  double a = factor(c, "a", "a_by") - s.lr * attrs.number("decay", 0.0), b = factor(c, "b", "b_by");
  double constant = attrs.number("c", 0.0);
  bool divide = attrs.integer("divide", 0) != 0;
  Tensor x = input(c, 1), y = input(c, 2), z = input(c, 3);
  for (int64_t e = 0; e < x.numel(); ++e) {
    double other = y ? y[e] : 0;
    if (z) other = divide ? other / z[e] : other * z[e];
    output(c, 0).set(e, (a == 0 ? 0 : a * x[e]) + (y ? b * other : 0) + constant);
  }
}

void sqrt(const KernelCall& c) {
  Tensor x = input(c, 0);
  for (int64_t e = 0; e < x.numel(); ++e) output(c, 0).set(e, std::sqrt(x[e]));
}

void unit_norm(const KernelCall& c) {
  Tensor x = input(c, 0);
  double squares = 0;
  for (int64_t e = 0; e < x.numel(); ++e) squares += x[e] * x[e];
  double norm = std::sqrt(squares) + c.instr.attrs.number("eps");
  for (int64_t e = 0; e < x.numel(); ++e) output(c, 0).set(e, x[e] / norm);
}

}  // namespace crest::reference
