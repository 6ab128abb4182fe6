// Row lookup and its transpose; the last valid row.
#include "backend/cpu/reference/dropout.h"
#include "backend/cpu/reference/kernels.h"
#include "ops/index.h"

namespace crest::reference {

void embedding(const KernelCall& c) {
  const auto* ids = c.input<int32_t>(in::embedding::ids);
  Tensor table = input(c, in::embedding::table), y = output(c, out::embedding::y);
  int64_t rows = table.size(0), width = table.size(1), tokens = input(c, in::embedding::ids).numel();
  Dropout dropped(c, in::embedding::scalars, y.shape());
  for (int64_t t = 0; t < tokens; ++t)
    for (int64_t j = 0; j < width; ++j) {
      const int64_t e = t * width + j, id = ids[t] - c.part_begin(rows);
      y.set(e, id >= 0 && id < rows ? table[id * width + j] : 0);
      y.set(e, dropped(e, y[e]));
    }
}

void embedding_grad(const KernelCall& c) {
  const auto* ids = c.input<int32_t>(in::embedding_grad::ids);
  Tensor dy = input(c, in::embedding_grad::dy), acc = input(c, in::embedding_grad::acc),
         table = output(c, out::embedding_grad::dtable);
  int64_t rows = table.size(0), width = table.size(1), tokens = input(c, in::embedding_grad::ids).numel();
  std::vector<double> sums(static_cast<size_t>(rows * width));
  for (int64_t t = 0; t < tokens; ++t)
    if (const int64_t id = ids[t] - c.part_begin(rows); id >= 0 && id < rows)
      for (int64_t j = 0; j < width; ++j) sums[size_t(id * width + j)] += dy[t * width + j];
  for (int64_t e = 0; e < rows * width; ++e) table.set(e, sums[size_t(e)] + so_far(acc, e));
}

void take_row(const KernelCall& c) {
  Tensor x = input(c, in::take_row::x), y = output(c, out::take_row::y);
  int64_t seq = x.size(1), width = x.size(2), row = scalars(c, in::take_row::scalars).length - 1;
  for (int64_t b = 0; b < x.size(0); ++b)
    for (int64_t j = 0; j < width; ++j) y.set(b * width + j, x[(b * seq + row) * width + j]);
}

}  // namespace crest::reference
