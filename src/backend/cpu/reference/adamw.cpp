// One AdamW step.
#include <cmath>

#include "backend/cpu/reference/kernels.h"
#include "backend/cpu/reference/tensor.h"

namespace crest::reference {

void adamw(const KernelCall& c) {
  const Scalars& s = scalars(c, 0);
  if (s.found_inf) return;  // every output lives in its input: nothing changes
  Tensor master = input(c, 1), m = input(c, 2), v = input(c, 3), g = input(c, 4);
  const Attrs& a = c.instr.attrs;
  double beta1 = a.number("beta1"), beta2 = a.number("beta2"), t = double(s.adam_step + 1);
  double correct1 = 1 - std::pow(beta1, t), correct2 = 1 - std::pow(beta2, t);
  for (int64_t e = 0; e < master.numel(); ++e) {
    double gradient = g[e] * s.grad_factor;
    double m_new = beta1 * m[e] + (1 - beta1) * gradient;
    double v_new = beta2 * v[e] + (1 - beta2) * gradient * gradient;
    double step = m_new / correct1 / (std::sqrt(v_new / correct2) + a.number("eps"));
    double w = master[e] - s.lr * (step + a.number("weight_decay") * master[e]);
    output(c, 0).set(e, w);
    output(c, 1).set(e, m_new);
    output(c, 2).set(e, v_new);
    if (c.instr.out.size() > 3) output(c, 3).set(e, output(c, 0)[e]);
  }
}

}  // namespace crest::reference
