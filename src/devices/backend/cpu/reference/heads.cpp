// split_heads makes views (nothing to do); join_heads copies heads back into one tensor.
#include "backend/cpu/reference/kernels.h"
#include "backend/cpu/reference/tensor.h"
#include "ops/index.h"

namespace crest::reference {

void split_heads(const KernelCall&) {}

void join_heads(const KernelCall& c) {
  Tensor y = output(c, out::join_heads::qkv);
  int64_t first = 0, width = y.size(2);
  for (size_t i = 0; i < c.instr.in.size(); ++i) {
    Tensor x = input(c, i);
    if (!x) continue;
    int64_t heads = x.size(1), seq = x.size(2), dim = x.size(3);
    for (int64_t b = 0; b < x.size(0); ++b)
      for (int64_t h = 0; h < heads; ++h)
        for (int64_t t = 0; t < seq; ++t)
          for (int64_t d = 0; d < dim; ++d) y.set((b * seq + t) * width + first + h * dim + d, x.at(b, h, t, d));
    first += heads * dim;
  }
}

}  // namespace crest::reference
