// Scores above the diagonal become -inf.
#include <cmath>

#include "backend/cpu/reference/kernels.h"
#include "backend/cpu/reference/tensor.h"

namespace crest::reference {

void causal_mask(const KernelCall& c) {
  Tensor s = input(c, 0), y = output(c, 0);
  int64_t t = s.size(3);
  for (int64_t e = 0; e < s.numel(); ++e) {
    int64_t column = e % t, row = e / t % t;
    y.set(e, column > row ? -INFINITY : s[e]);
  }
}

}  // namespace crest::reference
