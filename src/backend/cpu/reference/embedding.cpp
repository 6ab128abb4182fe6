// Row lookup and its transpose; the last valid row.
#include "backend/cpu/reference/kernels.h"
#include "backend/cpu/reference/tensor.h"

namespace crest::reference {

void embedding(const KernelCall& c) {
  const auto* ids = c.input<int32_t>(0);
  Tensor table = input(c, 1), y = output(c, 0);
  int64_t rows = table.size(0), width = table.size(1), tokens = input(c, 0).numel();
  for (int64_t t = 0; t < tokens; ++t)
    for (int64_t j = 0; j < width; ++j)
      y.set(t * width + j, ids[t] >= 0 && ids[t] < rows ? table[ids[t] * width + j] : 0);
}

void embedding_grad(const KernelCall& c) {
  const auto* ids = c.input<int32_t>(0);
  Tensor dy = input(c, 1), acc = input(c, 2), table = output(c, 0);
  int64_t rows = table.size(0), width = table.size(1), tokens = input(c, 0).numel();
  std::vector<double> sums(static_cast<size_t>(rows * width));
  for (int64_t t = 0; t < tokens; ++t)
    if (ids[t] >= 0 && ids[t] < rows)
      for (int64_t j = 0; j < width; ++j) sums[size_t(ids[t] * width + j)] += dy[t * width + j];
  for (int64_t e = 0; e < rows * width; ++e) table.set(e, sums[size_t(e)] + so_far(acc, e));
}

void take_row(const KernelCall& c) {
  Tensor x = input(c, 0), y = output(c, 0);
  int64_t seq = x.size(1), width = x.size(2), row = scalars(c, 1).length - 1;
  for (int64_t b = 0; b < x.size(0); ++b)
    for (int64_t j = 0; j < width; ++j) y.set(b * width + j, x[(b * seq + row) * width + j]);
}

}  // namespace crest::reference
