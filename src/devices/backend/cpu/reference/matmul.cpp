// Batched product of heads; with 'reduce' the products of a group of heads are summed.
#include "backend/cpu/reference/kernels.h"
#include "backend/cpu/reference/tensor.h"
#include "ops/index.h"

namespace crest::reference {

void matmul(const KernelCall& c) {
  Tensor a = input(c, in::matmul::a), b = input(c, in::matmul::b), y = output(c, out::matmul::c);
  bool ta = c.instr.attrs.integer("transpose_a", 0), tb = c.instr.attrs.integer("transpose_b", 0);
  int64_t heads = a.size(1), groups = b.size(1), out_heads = y.size(1), m = y.size(2), n = y.size(3);
  int64_t k = ta ? a.size(2) : a.size(3), summed = heads / out_heads;
  int64_t e = 0;
  for (int64_t s = 0; s < y.size(0); ++s)
    for (int64_t o = 0; o < out_heads; ++o)
      for (int64_t i = 0; i < m; ++i)
        for (int64_t j = 0; j < n; ++j) {
          double sum = 0;
          for (int64_t h = o * summed; h < (o + 1) * summed; ++h) {
            int64_t g = h * groups / heads;
            for (int64_t l = 0; l < k; ++l)
              sum += (ta ? a.at(s, h, l, i) : a.at(s, h, i, l)) * (tb ? b.at(s, g, j, l) : b.at(s, g, l, j));
          }
          y.set(e++, sum);
        }
}

}  // namespace crest::reference
