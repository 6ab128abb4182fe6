// LayerNorm and RMSNorm, row by row.
#include <cmath>

#include "backend/cpu/reference/kernels.h"
#include "backend/cpu/reference/tensor.h"

namespace crest::reference {

static bool is_layer(const KernelCall& c) { return c.instr.attrs.word("kind") == "layer"; }

// Normalises x into outputs first_out (y), +1 (rstd), +2 (mean).
static void normalise(const KernelCall& c, const Tensor& x, const Tensor& gamma, const Tensor& beta, size_t first_out) {
  int64_t rows = x.shape().rows(), width = x.shape().back();
  double eps = c.instr.attrs.number("eps");
  for (int64_t r = 0; r < rows; ++r) {
    double mean = 0, square = 0;
    if (is_layer(c)) {
      for (int64_t j = 0; j < width; ++j) mean += x[r * width + j];
      mean /= double(width);
      output(c, first_out + 2).set(r, mean);
    }
    for (int64_t j = 0; j < width; ++j) square += std::pow(x[r * width + j] - mean, 2);
    double rstd = 1 / std::sqrt(square / double(width) + eps);
    output(c, first_out + 1).set(r, rstd);
    for (int64_t j = 0; j < width; ++j)
      output(c, first_out).set(r * width + j, (x[r * width + j] - mean) * rstd * gamma[j] + so_far(beta, j));
  }
}

void norm(const KernelCall& c) { normalise(c, input(c, 0), input(c, 1), input(c, 2), 0); }

void add_norm(const KernelCall& c) {
  Tensor a = input(c, 0), b = input(c, 1), s = output(c, 0);
  for (int64_t e = 0; e < s.numel(); ++e) s.set(e, a[e] + b[e]);
  normalise(c, s, input(c, 2), input(c, 3), 1);  // of the rounded sum
}

// With n = (x - mean) rstd and g = dy gamma: dx = rstd (g - mean(g) - n mean(g n)); rms: without mean(g).
void norm_grad(const KernelCall& c) {
  Tensor dy = input(c, 0), x = input(c, 1), gamma = input(c, 2), rstd = input(c, 3), mean = input(c, 4);
  Tensor dres = input(c, 5), acc_gamma = input(c, 6), acc_beta = input(c, 7), dx = output(c, 0);
  int64_t rows = dy.shape().rows(), width = dy.shape().back();
  std::vector<double> dgamma(static_cast<size_t>(width)), dbeta(static_cast<size_t>(width));
  for (int64_t r = 0; r < rows; ++r) {
    auto normalised = [&](int64_t j) { return (x[r * width + j] - so_far(mean, r)) * rstd[r]; };
    double mean_g = 0, mean_gn = 0;
    for (int64_t j = 0; j < width; ++j) {
      double d = dy[r * width + j], n = normalised(j);
      mean_g += d * gamma[j] / double(width);
      mean_gn += d * gamma[j] * n / double(width);
      dgamma[size_t(j)] += d * n;
      dbeta[size_t(j)] += d;
    }
    if (!is_layer(c)) mean_g = 0;
    for (int64_t j = 0; j < width; ++j) {
      int64_t e = r * width + j;
      dx.set(e, rstd[r] * (dy[e] * gamma[j] - mean_g - normalised(j) * mean_gn) + so_far(dres, e));
    }
  }
  for (int64_t j = 0; j < width; ++j) {
    output(c, 1).set(j, dgamma[size_t(j)] + so_far(acc_gamma, j));
    if (c.instr.out.size() > 2) output(c, 2).set(j, dbeta[size_t(j)] + so_far(acc_beta, j));
  }
}

}  // namespace crest::reference
