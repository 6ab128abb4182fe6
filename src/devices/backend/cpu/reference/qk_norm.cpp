// RMSNorm of queries and keys, group by group.
#include <cmath>

#include "backend/cpu/reference/heads.h"
#include "backend/cpu/reference/kernels.h"
#include "ops/index.h"

namespace crest::reference {

namespace {

// Calls f(first element in a row, elements, group, keys) for each group of a token.
template <class F>
void for_groups(const KernelCall& c, const Heads& h, F f) {
  const bool head = c.instr.attrs.text("per") == "head";
  for (bool keys : {false, true}) {
    const int64_t first = keys ? h.heads * h.dim : 0, heads = keys ? h.kv_heads : h.heads;
    for (int64_t g = 0; g < (head ? heads : 1); ++g) f(first + g * h.dim, head ? h.dim : heads * h.dim, g, keys);
  }
}
double weight(const Tensor& w, int64_t j) { return w ? w[j] : 1; }

}  // namespace

void qk_norm(const KernelCall& c) {
  Tensor x = input(c, in::qk_norm::qkv), y = output(c, out::qk_norm::y);
  Tensor w[] = {input(c, in::qk_norm::q_weight), input(c, in::qk_norm::k_weight)};
  Tensor stat[] = {output(c, out::qk_norm::q_rstd), output(c, out::qk_norm::k_rstd)};
  Heads h(c, x);
  for (int64_t r = 0; r < h.batch * h.seq; ++r) {
    const int64_t row = r * h.width();
    for (int64_t e = 0; e < h.width(); ++e) y.set(row + e, x[row + e]);
    for_groups(c, h, [&](int64_t first, int64_t n, int64_t group, bool keys) {
      double square = 0;
      for (int64_t j = 0; j < n; ++j) square += std::pow(x[row + first + j], 2);
      const double rstd = 1 / std::sqrt(square / double(n) + c.instr.attrs.number("eps"));
      stat[keys].set(r * stat[keys].size(2) + group, rstd);
      for (int64_t j = 0; j < n; ++j) y.set(row + first + j, x[row + first + j] * rstd * weight(w[keys], j));
    });
  }
}

// With n = x rstd and g = dy w: dx = rstd (g - n mean(g n)), dw = sum of dy n.
void qk_norm_grad(const KernelCall& c) {
  namespace at = in::qk_norm_grad;
  Tensor dy = input(c, at::dy), x = input(c, at::qkv), dx = output(c, out::qk_norm_grad::dqkv);
  Tensor w[] = {input(c, at::q_weight), input(c, at::k_weight)}, acc[] = {input(c, at::acc_q), input(c, at::acc_k)};
  Tensor stat[] = {input(c, at::q_rstd), input(c, at::k_rstd)};
  Heads h(c, x);
  std::vector<double> dw[2];
  for (int keys : {0, 1}) dw[keys].resize(w[keys] ? size_t(w[keys].numel()) : 0);
  for (int64_t r = 0; r < h.batch * h.seq; ++r) {
    const int64_t row = r * h.width(), values = (h.heads + h.kv_heads) * h.dim;
    for (int64_t e = values; e < h.width(); ++e) dx.set(row + e, dy[row + e]);
    for_groups(c, h, [&](int64_t first, int64_t n, int64_t group, bool keys) {
      const double rstd = stat[keys][r * stat[keys].size(2) + group];
      double mean = 0;
      for (int64_t j = 0; j < n; ++j) {
        const double normal = x[row + first + j] * rstd, d = dy[row + first + j];
        mean += d * weight(w[keys], j) * normal / double(n);
        if (w[keys]) dw[keys][size_t(j)] += d * normal;
      }
      for (int64_t j = 0; j < n; ++j)
        dx.set(row + first + j, rstd * (dy[row + first + j] * weight(w[keys], j) - x[row + first + j] * rstd * mean));
    });
  }
  for (int keys : {0, 1})
    for (size_t j = 0; j < dw[keys].size(); ++j)
      output(c, size_t(out::qk_norm_grad::dq) + size_t(keys))
          .set(int64_t(j), dw[keys][j] + so_far(acc[keys], int64_t(j)));
}

}  // namespace crest::reference
