// Scores above the diagonal, and left of the document and window of their row, become -inf.
#include <algorithm>
#include <cmath>

#include "backend/cpu/reference/kernels.h"
#include "backend/cpu/reference/tensor.h"
#include "ops/index.h"

namespace crest::reference {

void causal_mask(const KernelCall& c) {
  Tensor s = input(c, in::causal_mask::s), y = output(c, out::causal_mask::y);
  int64_t t = s.size(3), heads = s.size(1);
  int64_t window = c.instr.attrs.integer("window", 0);
  const auto* positions = c.has(in::causal_mask::positions) ? c.input<int32_t>(in::causal_mask::positions) : nullptr;
  for (int64_t e = 0; e < s.numel(); ++e) {
    int64_t column = e % t, row = e / t % t;
    int64_t first = positions ? row - positions[e / (t * t * heads) * t + row] : 0;
    if (window) first = std::max(first, row - window + 1);
    y.set(e, column > row || column < first ? -INFINITY : s[e]);
  }
}

}  // namespace crest::reference
