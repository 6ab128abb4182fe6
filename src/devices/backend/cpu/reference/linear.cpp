// y = x w^T + b, its gradients with respect to x and w.
#include "backend/cpu/reference/kernels.h"
#include "backend/cpu/reference/tensor.h"
#include "ops/index.h"

namespace crest::reference {

// x w^T of the operands at these positions.
static std::vector<double> product(const KernelCall& c, size_t at_x, size_t at_w) {
  auto x = input(c, at_x).values(), w = input(c, at_w).values();
  size_t n = size_t(input(c, at_w).size(0)), k = size_t(input(c, at_w).size(1)), m = x.size() / k;
  std::vector<double> y(m * n);
  for (size_t i = 0; i < m; ++i)
    for (size_t j = 0; j < n; ++j)
      for (size_t l = 0; l < k; ++l) y[i * n + j] += x[i * k + l] * w[j * k + l];
  return y;
}
static std::vector<double> product(const KernelCall& c) {
  auto y = product(c, in::linear::x, in::linear::w);
  Tensor b = input(c, in::linear::b);
  size_t n = size_t(input(c, in::linear::w).size(0));
  for (size_t i = 0; i < y.size(); ++i) y[i] += so_far(b, int64_t(i % n));
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

void linear_swiglu(const KernelCall& c) {
  namespace at = in::linear_swiglu;
  namespace to = out::linear_swiglu;
  auto g = product(c, at::x, at::w), u = product(c, at::x, at::w_up);
  Pointwise silu = pointwise_function("silu");
  for (size_t i = 0; i < g.size(); ++i) {
    output(c, to::a).set(int64_t(i), silu(&g[i], 0) * u[i]);
    if (c.instr.out.size() == to::a + 1) continue;
    output(c, to::g).set(int64_t(i), g[i]);
    output(c, to::u).set(int64_t(i), u[i]);
  }
}

static std::vector<double> product_dx(const KernelCall& c, size_t at_dy = in::linear_dx::dy,
                                      size_t at_w = in::linear_dx::w) {
  auto dy = input(c, at_dy).values(), w = input(c, at_w).values();
  size_t n = size_t(input(c, at_w).size(0)), k = size_t(input(c, at_w).size(1)), m = dy.size() / n;
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

void linear_dx_sum(const KernelCall& c) {
  namespace at = in::linear_dx_sum;
  auto dx = product_dx(c, at::dy, at::w), more = product_dx(c, at::dy_2, at::w_2);
  for (size_t i = 0; i < dx.size(); ++i) output(c, out::linear_dx_sum::dx).set(int64_t(i), dx[i] + more[i]);
}

void linear_dx_swiglu_grad(const KernelCall& c) {
  namespace at = in::linear_dx_swiglu_grad;
  namespace to = out::linear_dx_swiglu_grad;
  auto da = product_dx(c), g = input(c, at::g).values(), u = input(c, at::u).values();
  Pointwise silu = pointwise_function("silu"), silu_grad = pointwise_function("silu_grad");
  for (size_t i = 0; i < da.size(); ++i) {
    const double gate = silu(&g[i], 0), both[] = {da[i] * u[i], g[i]};
    output(c, to::dg).set(int64_t(i), silu_grad(both, 0));
    output(c, to::du).set(int64_t(i), da[i] * gate);
    if (c.instr.out.size() > to::a) output(c, to::a).set(int64_t(i), gate * u[i]);
  }
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
