// Layers with weights in 8 bits.
#include "backend/cpu/reference/kernels.h"
#include "backend/cpu/reference/tensor.h"
#include "ops/index.h"

namespace crest::reference {

void linear_int8(const KernelCall& c) {
  namespace at = in::linear_int8;
  auto x = input(c, at::x).values(), w = input(c, at::w).values();
  Tensor scale = input(c, at::scale), b = input(c, at::b), y = output(c, out::linear_int8::y);
  size_t n = size_t(input(c, at::w).size(0)), k = size_t(input(c, at::w).size(1)), m = x.size() / k;
  for (size_t i = 0; i < m; ++i)
    for (size_t j = 0; j < n; ++j) {
      double sum = 0;
      for (size_t l = 0; l < k; ++l) sum += x[i * k + l] * w[j * k + l];
      y.set(int64_t(i * n + j), sum * scale[int64_t(j)] + so_far(b, int64_t(j)));
    }
}

void embedding_int8(const KernelCall& c) {
  namespace at = in::embedding_int8;
  const auto* ids = c.input<int32_t>(at::ids);
  Tensor table = input(c, at::table), scale = input(c, at::scale), y = output(c, out::embedding_int8::y);
  int64_t rows = table.size(0), width = table.size(1), tokens = input(c, at::ids).numel();
  for (int64_t t = 0; t < tokens; ++t)
    for (int64_t j = 0; j < width; ++j)
      y.set(t * width + j, ids[t] >= 0 && ids[t] < rows ? table[ids[t] * width + j] * scale[ids[t]] : 0);
}

}  // namespace crest::reference
