// Global norm of the gradients, clipping factor, found-inf flag.
#include <algorithm>
#include <cmath>

#include "backend/cpu/reference/kernels.h"
#include "backend/cpu/reference/tensor.h"
#include "ops/index.h"

namespace crest::reference {

void grad_norm(const KernelCall& c) {
  Scalars s = scalars(c, in::grad_norm::scalars);
  double sum = 0, clip = c.instr.attrs.number("clip");
  for (size_t i = in::grad_norm::gradients; i < c.instr.in.size(); ++i) {
    Tensor g = input(c, i);
    for (int64_t e = 0; e < g.numel(); ++e) sum += c.instr.attrs.integer("squares", 0) ? g[e] : g[e] * g[e];
  }
  s.grad_norm = float(std::sqrt(sum) / s.loss_scale);
  s.found_inf = !std::isfinite(s.grad_norm);
  double factor = clip > 0 ? std::min(1.0, clip / (s.grad_norm + 1e-6)) : 1.0;
  s.grad_factor = s.found_inf ? 0.0f : float(factor / s.loss_scale);
  *c.output<Scalars>(out::grad_norm::scalars) = s;
}

}  // namespace crest::reference
