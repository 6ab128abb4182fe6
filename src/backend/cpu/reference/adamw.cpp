// One AdamW step.
#include <cmath>

#include "backend/cpu/reference/kernels.h"
#include "backend/cpu/reference/quantized.h"
#include "backend/cpu/reference/update.h"

namespace crest::reference {

namespace {

struct AdamW {
  AdamW(const Attrs& a, const Scalars& s)
      : beta1(a.number("beta1")),
        beta2(a.number("beta2")),
        eps(a.number("eps")),
        decay(a.number("weight_decay")),
        lr(s.lr),
        correct1(1 - std::pow(beta1, double(s.adam_step + 1))),
        correct2(1 - std::pow(beta2, double(s.adam_step + 1))) {}
  void operator()(double& p, double g, double* state) const {
    double &m = state[0], &v = state[1];
    m = beta1 * m + (1 - beta1) * g;
    v = beta2 * v + (1 - beta2) * g * g;
    p -= lr * (m / correct1 / (std::sqrt(v / correct2) + eps) + decay * p);
  }
  double beta1, beta2, eps, decay, lr, correct1, correct2;
};

}  // namespace

void adamw(const KernelCall& c) { update<2>(c, AdamW(c.instr.attrs, scalars(c, 0))); }

// Block by block: numbers out of codes, a step in double, codes of the new moments at the block's new scale.
void adamw_8bit(const KernelCall& c) {
  const Scalars& s = scalars(c, 0);
  if (s.found_inf) return;
  AdamW rule(c.instr.attrs, s);
  Master master(c, 7, 5);
  Tensor g = input(c, 6);
  int64_t n = g.numel(), block = c.instr.attrs.integer("block");
  for (int64_t begin = 0; begin < n; begin += block) {
    int64_t end = std::min(begin + block, n);
    Quantized m(c, 2, begin, end, true), v(c, 4, begin, end, false);
    for (int64_t e = begin; e < end; ++e) {
      double p = master[e], state[] = {m[e], v[e]};
      rule(p, g[e] * s.grad_factor, state);
      m[e] = state[0], v[e] = state[1];
      master.set(e, p);
    }
    m.store(c, 1);
    v.store(c, 3);
  }
}

}  // namespace crest::reference
