// y = x w^T + b, its gradients with respect to x and w.
#include "backend/cpu/reference/kernels.h"
#include "backend/cpu/reference/tensor.h"
#include "ops/index.h"

namespace crest::reference {

static std::vector<double> product(const KernelCall& c) {
  auto x = input(c, in::linear::x).values(), w = input(c, in::linear::w).values();
  Tensor b = input(c, in::linear::b);
  size_t n = size_t(input(c, in::linear::w).size(0)), k = size_t(input(c, in::linear::w).size(1)), m = x.size() / k;
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
  for (size_t i = 0; i < y.size(); ++i) output(c, out::linear::y).set(int64_t(i), y[i]);
}

void linear_gelu(const KernelCall& c) {
  auto h = product(c);
  Pointwise gelu = pointwise_function("gelu");
  for (size_t i = 0; i < h.size(); ++i) {
    output(c, out::linear_gelu::a).set(int64_t(i), gelu(&h[i], 0));
    if (c.instr.out.size() > 1) output(c, out::linear_gelu::h).set(int64_t(i), h[i]);
  }
}

static std::vector<double> product_dx(const KernelCall& c) {
  auto dy = input(c, in::linear_dx::dy).values(), w = input(c, in::linear_dx::w).values();
  size_t n = size_t(input(c, in::linear_dx::w).size(0)), k = size_t(input(c, in::linear_dx::w).size(1)),
         m = dy.size() / n;
  std::vector<double> dx(m * k);
  for (size_t i = 0; i < m; ++i)
    for (size_t l = 0; l < k; ++l)
      for (size_t j = 0; j < n; ++j) dx[i * k + l] += dy[i * n + j] * w[j * k + l];
  return dx;
}

void linear_dx(const KernelCall& c) {
  auto dx = product_dx(c);
  for (size_t i = 0; i < dx.size(); ++i) output(c, out::linear_dx::dx).set(int64_t(i), dx[i]);
}

void linear_dx_gelu_grad(const KernelCall& c) {
  namespace to = out::linear_dx_gelu_grad;
  auto dx = product_dx(c), x = input(c, in::linear_dx_gelu_grad::x).values();
  Tensor acc = input(c, in::linear_dx_gelu_grad::acc), db = output(c, to::db);
  Pointwise gelu = pointwise_function("gelu"), gelu_grad = pointwise_function("gelu_grad");
  size_t n = size_t(db.size(0));
  std::vector<double> sums(n);
  for (size_t i = 0; i < dx.size(); ++i) {
    double both[] = {dx[i], x[i]};
    dx[i] = gelu_grad(both, 0);
    sums[i % n] += dx[i];
    output(c, to::dx).set(int64_t(i), dx[i]);
    if (c.instr.out.size() > to::a) output(c, to::a).set(int64_t(i), gelu(&x[i], 0));
  }
  for (size_t j = 0; j < n; ++j) db.set(int64_t(j), so_far(acc, int64_t(j)) + sums[j]);
}

void linear_dw(const KernelCall& c) {
  auto dy = input(c, in::linear_dw::dy).values(), x = input(c, in::linear_dw::x).values();
  Tensor acc = input(c, in::linear_dw::acc), dw = output(c, out::linear_dw::dw);
  size_t n = size_t(dw.size(0)), k = size_t(dw.size(1)), m = dy.size() / n;
  for (size_t j = 0; j < n; ++j)
    for (size_t l = 0; l < k; ++l) {
      double sum = so_far(acc, int64_t(j * k + l));
      for (size_t i = 0; i < m; ++i) sum += dy[i * n + j] * x[i * k + l];
      dw.set(int64_t(j * k + l), sum);
    }
}

}  // namespace crest::reference
