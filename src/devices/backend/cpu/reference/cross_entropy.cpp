// Cross-entropy over the first `vocab` columns of each row of logits.
#include <algorithm>
#include <cmath>

#include "backend/cpu/reference/kernels.h"
#include "backend/cpu/reference/tensor.h"
#include "ops/index.h"

namespace crest::reference {

static double row_lse(const Tensor& logits, int64_t row, int64_t vocab) {
  int64_t first = row * logits.shape().back();
  double largest = -INFINITY, sum = 0;
  for (int64_t j = 0; j < vocab; ++j) largest = std::max(largest, logits[first + j]);
  for (int64_t j = 0; j < vocab; ++j) sum += std::exp(logits[first + j] - largest);
  return largest + std::log(sum);
}

// weight: of the step's scalars (core/scalars.h).
static double row_loss(const Tensor& logits, int64_t row, int32_t target, double lse, double weight) {
  return target < 0 ? 0 : weight * (lse - logits[row * logits.shape().back() + target]);
}

static void row_grad(const Tensor& logits, const Tensor& dlogits, int64_t row, int64_t vocab, int32_t target,
                     double lse, double scale) {
  int64_t width = logits.shape().back();
  for (int64_t j = 0; j < width; ++j) {
    int64_t e = row * width + j;
    bool counts = target >= 0 && j < vocab;
    dlogits.set(e, counts ? (std::exp(logits[e] - lse) - (j == target ? 1 : 0)) * scale : 0);
  }
}

void cross_entropy(const KernelCall& c) {
  Tensor logits = input(c, in::cross_entropy::logits);
  const auto* targets = c.input<int32_t>(in::cross_entropy::targets);
  int64_t vocab = c.instr.attrs.integer("vocab");
  double weight = c.has(in::cross_entropy::scalars) ? scalars(c, in::cross_entropy::scalars).loss_weight : 1;
  for (int64_t r = 0; r < logits.shape().rows(); ++r) {
    double lse = row_lse(logits, r, vocab);
    output(c, out::cross_entropy::loss).set(r, row_loss(logits, r, targets[r], lse, weight));
    output(c, out::cross_entropy::lse).set(r, lse);
  }
}

void cross_entropy_grad(const KernelCall& c) {
  Tensor logits = input(c, in::cross_entropy_grad::logits), lse = input(c, in::cross_entropy_grad::lse);
  const auto* targets = c.input<int32_t>(in::cross_entropy_grad::targets);
  double scale = c.instr.attrs.number("scale") * scalars(c, in::cross_entropy_grad::scalars).loss_scale *
                 scalars(c, in::cross_entropy_grad::scalars).loss_weight;
  for (int64_t r = 0; r < logits.shape().rows(); ++r)
    row_grad(logits, output(c, out::cross_entropy_grad::dlogits), r, c.instr.attrs.integer("vocab"), targets[r], lse[r],
             scale);
}

void cross_entropy_fused(const KernelCall& c) {
  Tensor logits = input(c, in::cross_entropy_fused::logits);
  const auto* targets = c.input<int32_t>(in::cross_entropy_fused::targets);
  int64_t vocab = c.instr.attrs.integer("vocab");
  double weight = scalars(c, in::cross_entropy_fused::scalars).loss_weight;
  double scale = c.instr.attrs.number("scale") * scalars(c, in::cross_entropy_fused::scalars).loss_scale * weight;
  for (int64_t r = 0; r < logits.shape().rows(); ++r) {
    double lse = row_lse(logits, r, vocab);
    output(c, out::cross_entropy_fused::loss)
        .set(r, row_loss(logits, r, targets[r], lse, weight));  // before the gradient, which may overwrite the logits
    row_grad(logits, output(c, out::cross_entropy_fused::dlogits), r, vocab, targets[r], lse, scale);
  }
}

void sum_loss(const KernelCall& c) {
  Tensor loss = input(c, in::sum_loss::loss), acc = input(c, in::sum_loss::acc);
  double sum = 0;
  for (int64_t r = 0; r < loss.numel(); ++r) sum += loss[r];
  output(c, out::sum_loss::sum).set(0, sum * c.instr.attrs.number("scale") + so_far(acc, 0));
}

}  // namespace crest::reference
