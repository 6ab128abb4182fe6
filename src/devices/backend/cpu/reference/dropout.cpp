#include "backend/cpu/reference/dropout.h"

#include "backend/cpu/reference/kernels.h"
#include "ops/index.h"

namespace crest::reference {

void dropout(const KernelCall& c) {
  Tensor x = input(c, in::dropout::x), y = output(c, out::dropout::y);
  Dropout dropped(c, in::dropout::scalars, x.shape());
  const DType from = c.in_value(in::dropout::x).dtype, to = c.out_value(out::dropout::y).dtype;
  const DType narrow = size_of(from) < size_of(to) ? from : to;
  for (int64_t e = 0; e < y.numel(); ++e) y.set(e, rounded(narrow, dropped(e, rounded(narrow, x[e]))));
}

}  // namespace crest::reference
