// Column sums.
#include "backend/cpu/reference/kernels.h"
#include "backend/cpu/reference/tensor.h"
#include "ops/index.h"

namespace crest::reference {

void bias_grad(const KernelCall& c) {
  Tensor dy = input(c, in::bias_grad::dy), acc = input(c, in::bias_grad::acc), db = output(c, out::bias_grad::db);
  int64_t n = db.numel(), rows = dy.shape().rows();
  for (int64_t j = 0; j < n; ++j) {
    double sum = so_far(acc, j);
    for (int64_t i = 0; i < rows; ++i) sum += dy[i * n + j];
    db.set(j, sum);
  }
}

}  // namespace crest::reference
