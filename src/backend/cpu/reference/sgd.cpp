// One step of SGD with momentum.
#include "backend/cpu/reference/kernels.h"
#include "backend/cpu/reference/update.h"

namespace crest::reference {

void sgd(const KernelCall& c) {
  const Attrs& a = c.instr.attrs;
  double momentum = a.number("momentum"), decay = a.number("weight_decay"), lr = scalars(c, 0).lr;
  update<1>(c, [=](double& p, double g, double* m) {
    m[0] = momentum * m[0] + g;
    p -= lr * (m[0] + decay * p);
  });
}

}  // namespace crest::reference
