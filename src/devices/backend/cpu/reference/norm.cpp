// LayerNorm and RMSNorm, row by row.
#include <cmath>

#include "backend/cpu/reference/dropout.h"
#include "backend/cpu/reference/kernels.h"
#include "ops/index.h"
#include "ops/norm.h"

namespace crest::reference {

static bool is_layer(const KernelCall& c) { return c.instr.attrs.text("kind") == "layer"; }

// Positions of the outputs.
struct Outputs {
  size_t y, rstd, mean;
};

static void normalize(const KernelCall& c, const Tensor& x, const Tensor& gamma, const Tensor& beta, Outputs out) {
  int64_t rows = x.shape().rows(), width = x.shape().back();
  double eps = c.instr.attrs.number("eps");
  for (int64_t r = 0; r < rows; ++r) {
    double mean = 0, square = 0;
    if (is_layer(c)) {
      for (int64_t j = 0; j < width; ++j) mean += x[r * width + j];
      mean /= double(width);
      output(c, out.mean).set(r, mean);
    }
    for (int64_t j = 0; j < width; ++j) square += std::pow(x[r * width + j] - mean, 2);
    double rstd = 1 / std::sqrt(square / double(width) + eps);
    output(c, out.rstd).set(r, rstd);
    for (int64_t j = 0; j < width; ++j)
      output(c, out.y).set(r * width + j, (x[r * width + j] - mean) * rstd * factor(gamma, j) + so_far(beta, j));
  }
}

void norm(const KernelCall& c) {
  normalize(c, input(c, in::norm::x), input(c, in::norm::gamma), input(c, in::norm::beta),
            {out::norm::y, out::norm::rstd, out::norm::mean});
}

void add_norm(const KernelCall& c) {
  Tensor a = input(c, in::add_norm::a), b = input(c, in::add_norm::b), s = output(c, out::add_norm::s);
  Dropout dropped(c, in::add_norm::scalars, s.shape());
  const DType t = c.in_value(in::add_norm::b).dtype;
  for (int64_t e = 0; e < s.numel(); ++e) s.set(e, a[e] + rounded(t, dropped(e, b[e])));
  normalize(c, s, input(c, in::add_norm::gamma), input(c, in::add_norm::beta),  // of the rounded sum
            {out::add_norm::y, out::add_norm::rstd, out::add_norm::mean});
}

// With n = (x - mean) rstd and g = dy gamma: dx = rstd (g - mean(g) - n mean(g n)); rms: without
// mean(g). Dropout applies to dx as stored.
void norm_grad(const KernelCall& c) {
  Tensor dy = input(c, in::norm_grad::dy), x = input(c, in::norm_grad::x), gamma = input(c, in::norm_grad::gamma),
         rstd = input(c, in::norm_grad::rstd), mean = input(c, in::norm_grad::mean);
  Tensor dres = input(c, in::norm_grad::dres), acc_gamma = input(c, in::norm_grad::acc_gamma),
         acc_beta = input(c, in::norm_grad::acc_beta), acc_bias = input(c, in::norm_grad::acc_bias),
         beta = input(c, in::norm_grad::beta), dx = output(c, out::norm_grad::dx);
  const bool keep = c.instr.attrs.integer("keep", 0) != 0, apart = c.instr.attrs.integer("apart", 0) != 0;
  Dropout dropout(c, in::norm_grad::scalars, dy.shape());
  Tensor dropped = apart ? output(c, place_of_dropped(c.instr.attrs)) : dx;
  int64_t rows = dy.shape().rows(), width = dy.shape().back();
  std::vector<double> dgamma(static_cast<size_t>(width)), dbeta(dgamma), dbias(dgamma);
  for (int64_t r = 0; r < rows; ++r) {
    auto normalized = [&](int64_t j) { return (x[r * width + j] - so_far(mean, r)) * rstd[r]; };
    double mean_g = 0, mean_gn = 0;
    for (int64_t j = 0; j < width; ++j) {
      double d = dy[r * width + j], n = normalized(j);
      mean_g += d * factor(gamma, j) / double(width);
      mean_gn += d * factor(gamma, j) * n / double(width);
      dgamma[size_t(j)] += d * n;
      dbeta[size_t(j)] += d;
    }
    if (!is_layer(c)) mean_g = 0;
    for (int64_t j = 0; j < width; ++j) {
      int64_t e = r * width + j;
      dx.set(e, rstd[r] * (dy[e] * factor(gamma, j) - mean_g - normalized(j) * mean_gn) + so_far(dres, e));
      dropped.set(e, dropout(e, dx[e]));
      dbias[size_t(j)] += dropped[e];
      if (keep) output(c, c.instr.out.size() - 1).set(e, normalized(j) * factor(gamma, j) + so_far(beta, j));
    }
  }
  for (int64_t j = 0; j < width; ++j) {
    output(c, out::norm_grad::dgamma).set(j, dgamma[size_t(j)] + so_far(acc_gamma, j));
    if (c.instr.attrs.integer("beta")) output(c, out::norm_grad::dbeta).set(j, dbeta[size_t(j)] + so_far(acc_beta, j));
    if (c.instr.attrs.integer("bias", 0))
      output(c, out::norm_grad::dbias).set(j, dbias[size_t(j)] + so_far(acc_bias, j));
  }
}

}  // namespace crest::reference
