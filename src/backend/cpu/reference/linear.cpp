// y = x w^T + b, its gradients with respect to x and w.
#include "backend/cpu/reference/kernels.h"
#include "backend/cpu/reference/tensor.h"

namespace crest::reference {

static std::vector<double> product(const KernelCall& c) {
  auto x = input(c, 0).values(), w = input(c, 1).values();
  Tensor b = input(c, 2);
  size_t n = size_t(input(c, 1).size(0)), k = size_t(input(c, 1).size(1)), m = x.size() / k;
  std::vector<double> y(m * n);
  for (size_t i = 0; i < m; ++i)
    for (size_t j = 0; j < n; ++j) {
      double sum = so_far(b, int64_t(j));
      for (size_t l = 0; l < k; ++l) sum += x[i * k + l] * w[j * k + l];
      y[i * n + j] = sum;
    }
  return y;
}

void linear(const KernelCall& c) {
  auto y = product(c);
  for (size_t i = 0; i < y.size(); ++i) output(c, 0).set(int64_t(i), y[i]);
}

void linear_gelu(const KernelCall& c) {
  auto h = product(c);
  Pointwise gelu = pointwise_function("gelu");
  for (size_t i = 0; i < h.size(); ++i) {
    output(c, 0).set(int64_t(i), gelu(&h[i], 0));
    if (c.instr.out.size() > 1) output(c, 1).set(int64_t(i), h[i]);
  }
}

void linear_dx(const KernelCall& c) {
  auto dy = input(c, 0).values(), w = input(c, 1).values();
  size_t n = size_t(input(c, 1).size(0)), k = size_t(input(c, 1).size(1)), m = dy.size() / n;
  for (size_t i = 0; i < m; ++i)
    for (size_t l = 0; l < k; ++l) {
      double sum = 0;
      for (size_t j = 0; j < n; ++j) sum += dy[i * n + j] * w[j * k + l];
      output(c, 0).set(int64_t(i * k + l), sum);
    }
}

void linear_dw(const KernelCall& c) {
  auto dy = input(c, 0).values(), x = input(c, 1).values();
  Tensor acc = input(c, 2), dw = output(c, 0);
  size_t n = size_t(dw.size(0)), k = size_t(dw.size(1)), m = dy.size() / n;
  for (size_t j = 0; j < n; ++j)
    for (size_t l = 0; l < k; ++l) {
      double sum = so_far(acc, int64_t(j * k + l));
      for (size_t i = 0; i < m; ++i) sum += dy[i * n + j] * x[i * k + l];
      dw.set(int64_t(j * k + l), sum);
    }
}

}  // namespace crest::reference
