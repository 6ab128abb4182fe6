// Adafactor's factored second moment and its step.
#include <algorithm>
#include <cmath>

#include "backend/cpu/reference/kernels.h"
#include "backend/cpu/reference/tensor.h"
#include "ops/index.h"

namespace crest::reference {

void factored_moments(const KernelCall& c) {
  const Scalars& s = scalars(c, in::factored_moments::scalars);
  if (s.found_inf) return;
  Tensor g = input(c, in::factored_moments::g), row = input(c, in::factored_moments::row),
         col = input(c, in::factored_moments::col);
  int64_t rows = g.size(0), cols = g.size(1);
  double t = double(s.adam_step + 1), keep = 1 - std::pow(t, -c.instr.attrs.number("decay_rate"));
  double eps = c.instr.attrs.number("eps");
  std::vector<double> row_sum(size_t(rows), 0), col_sum(size_t(cols), 0);
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < cols; ++j) {
      double x = g[i * cols + j] * s.grad_factor, square = x * x + eps;
      row_sum[size_t(i)] += square, col_sum[size_t(j)] += square;
    }
  for (int64_t i = 0; i < rows; ++i)
    output(c, out::factored_moments::row).set(i, keep * row[i] + (1 - keep) * row_sum[size_t(i)] / double(cols));
  for (int64_t j = 0; j < cols; ++j)
    output(c, out::factored_moments::col).set(j, keep * col[j] + (1 - keep) * col_sum[size_t(j)] / double(rows));
}

void factored_update(const KernelCall& c) {
  const Scalars& s = scalars(c, in::factored_update::scalars);
  if (s.found_inf) return;
  Tensor p = input(c, in::factored_update::master), g = input(c, in::factored_update::g),
         row = input(c, in::factored_update::row), col = input(c, in::factored_update::col);
  int64_t rows = g.size(0), cols = g.size(1), n = rows * cols;
  double row_mean = 0, squares = 0;
  for (int64_t i = 0; i < rows; ++i) row_mean += row[i] / double(rows);
  auto direction = [&](int64_t e) {
    return g[e] * s.grad_factor / std::sqrt(row[e / cols] * col[e % cols] / row_mean);
  };
  for (int64_t e = 0; e < n; ++e) squares += direction(e) * direction(e);
  double clip = std::max(1.0, std::sqrt(squares / double(n)) / c.instr.attrs.number("clip"));
  const double momentum = c.instr.attrs.number("momentum", 0), lr = s.lr * c.instr.attrs.number("lr_factor", 1.0);
  for (int64_t e = 0; e < n; ++e) {
    double x = p[e], u = direction(e) / clip;
    output(c, out::factored_update::master)
        .set(e, momentum > 0 ? momentum * x + (1 - momentum) * u
                             : x - lr * (u + c.instr.attrs.number("weight_decay") * x));
    if (c.has(in::factored_update::w))
      output(c, out::factored_update::w).set_weight(e, output(c, out::factored_update::master)[e]);
  }
}

}  // namespace crest::reference
