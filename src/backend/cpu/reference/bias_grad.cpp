// Column sums.
#include "backend/cpu/reference/kernels.h"
#include "backend/cpu/reference/tensor.h"

namespace crest::reference {

void bias_grad(const KernelCall& c) {
  Tensor dy = input(c, 0), acc = input(c, 1), db = output(c, 0);
  int64_t n = db.numel(), rows = dy.shape().rows();
  for (int64_t j = 0; j < n; ++j) {
    double sum = so_far(acc, j);
    for (int64_t i = 0; i < rows; ++i) sum += dy[i * n + j];
    db.set(j, sum);
  }
}

}  // namespace crest::reference
