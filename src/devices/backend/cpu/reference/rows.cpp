// split_rows and member make views (nothing to do); join_rows puts pieces one behind the other,
// where they may lie already.
#include "backend/cpu/reference/kernels.h"
#include "backend/cpu/reference/tensor.h"
#include "ops/index.h"

namespace crest::reference {

void split_rows(const KernelCall&) {}
void member(const KernelCall&) {}

void join_rows(const KernelCall& c) {
  Tensor y = output(c, out::join_rows::x);
  int64_t first = 0;
  for (size_t i = 0; i < c.instr.in.size(); ++i) {
    Tensor x = input(c, i);
    for (int64_t k = 0; k < x.numel(); ++k) y.set(first + k, x[k]);
    first += x.numel();
  }
}

}  // namespace crest::reference
