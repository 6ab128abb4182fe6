// Products and rows of 8-bit weights, each row with its scale.
#include "backend/cpu/reference/kernels.h"
#include "backend/cpu/reference/tensor.h"
#include "ops/index.h"

namespace crest::reference {

static std::vector<double> product_int8(const KernelCall& c) {
  namespace at = in::linear_int8;
  auto x = input(c, at::x).values(), w = input(c, at::w).values(), scale = input(c, at::scale).values();
  Tensor b = input(c, at::b);
  size_t n = size_t(input(c, at::w).size(0)), k = size_t(input(c, at::w).size(1)), m = x.size() / k;
  std::vector<double> y(m * n);
  for (size_t i = 0; i < m; ++i)
    for (size_t j = 0; j < n; ++j) {
      double sum = 0;
      for (size_t l = 0; l < k; ++l) sum += x[i * k + l] * w[j * k + l];
      y[i * n + j] = sum * scale[j] + so_far(b, int64_t(j));
    }
  return y;
}

void linear_int8(const KernelCall& c) {
  auto y = product_int8(c);
  for (size_t i = 0; i < y.size(); ++i) output(c, out::linear_int8::y).set(int64_t(i), y[i]);
}

void linear_gelu_int8(const KernelCall& c) {
  auto h = product_int8(c);
  Pointwise gelu = pointwise_function("gelu");
  for (size_t i = 0; i < h.size(); ++i) output(c, out::linear_gelu_int8::a).set(int64_t(i), gelu(&h[i], 0));
}

void dequantize(const KernelCall& c) {
  Tensor q = input(c, in::dequantize::q), scale = input(c, in::dequantize::scale), x = output(c, out::dequantize::x);
  int64_t width = c.in_value(in::dequantize::q).shape.back();
  for (int64_t i = 0; i < q.numel(); ++i) x.set(i, q[i] * scale[i / width]);
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
