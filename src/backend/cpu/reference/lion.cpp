// One Lion step.
#include "backend/cpu/reference/kernels.h"
#include "backend/cpu/reference/update.h"

namespace crest::reference {

void lion(const KernelCall& c) {
  const Attrs& a = c.instr.attrs;
  double beta1 = a.number("beta1"), beta2 = a.number("beta2"), decay = a.number("weight_decay"), lr = scalars(c, 0).lr;
  update<1>(c, [=](double& p, double g, double* m) {
    double direction = beta1 * m[0] + (1 - beta1) * g;
    double sign = direction > 0 ? 1 : direction < 0 ? -1 : 0;
    p -= lr * (sign + decay * p);
    m[0] = beta2 * m[0] + (1 - beta2) * g;
  });
}

}  // namespace crest::reference
