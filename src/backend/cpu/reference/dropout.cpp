#include "backend/cpu/reference/dropout.h"

#include "backend/cpu/reference/kernels.h"
#include "ops/index.h"

namespace crest::reference {

void dropout(const KernelCall& c) {
  Tensor x = input(c, in::dropout::x), y = output(c, out::dropout::y);
  Dropout dropped(c, in::dropout::scalars, x.shape());
  for (int64_t e = 0; e < y.numel(); ++e) y.set(e, dropped(e, x[e]));
}

}  // namespace crest::reference
