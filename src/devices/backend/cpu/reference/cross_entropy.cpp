// Cross-entropy over the first `vocab` columns of each row of logits. If ranks share the columns,
// this one has those from `first` on.
#include <algorithm>
#include <cmath>

#include "backend/cpu/reference/kernels.h"
#include "backend/cpu/reference/tensor.h"
#include "ops/index.h"

namespace crest::reference {

// `sum` e^`largest` is a sum of exponentials.
struct RowSum {
  double largest = -INFINITY, sum = 0;
  double log() const { return largest + std::log(sum); }
};

// The logits of the softmax, and their slopes with respect to the ones in memory.
class Logits {
 public:
  explicit Logits(const KernelCall& c)
      : x_(input(c, in::cross_entropy::logits)), cap_(c.instr.attrs.number("cap", 0)) {}
  Shape shape() const { return x_.shape(); }
  double operator[](int64_t i) const { return cap_ > 0 ? cap_ * std::tanh(x_[i] / cap_) : x_[i]; }
  double slope(int64_t i) const { return cap_ > 0 ? std::pow(std::cosh(x_[i] / cap_), -2) : 1; }

 private:
  Tensor x_;
  double cap_;  // 0: none
};

static RowSum row_sum(const Logits& logits, int64_t row, int64_t vocab) {
  const int64_t first = row * logits.shape().back();
  RowSum s;
  for (int64_t j = 0; j < vocab; ++j) s.largest = std::max(s.largest, logits[first + j]);
  const double shift = s.largest == -INFINITY ? 0 : s.largest;  // of a rank whose columns are all masked
  for (int64_t j = 0; j < vocab; ++j) s.sum += std::exp(logits[first + j] - shift);
  return s;
}

// Columns that count, of `columns` from `first` on.
static int64_t own_vocab(const KernelCall& c, int64_t first, int64_t columns) {
  return std::clamp<int64_t>(c.instr.attrs.integer("vocab") - first, 0, columns);
}

void loss_stats(const KernelCall& c) {
  const Logits logits(c);
  const Tensor stats = output(c, out::loss_stats::stats);
  const auto* targets = c.input<int32_t>(in::loss_stats::targets);
  const int64_t columns = logits.shape().back(), first = c.part_begin(columns), vocab = own_vocab(c, first, columns);
  for (int64_t r = 0; r < logits.shape().rows(); ++r) {
    const RowSum s = row_sum(logits, r, vocab);
    const int64_t at = targets[r] - first;
    stats.set(r * 3, s.largest);
    stats.set(r * 3 + 1, s.sum);
    stats.set(r * 3 + 2, at >= 0 && at < vocab ? logits[r * columns + at] : 0);
  }
}

// In the order of the ranks.
static void combine(const KernelCall& c, int64_t rows, double weight) {
  const Tensor stats = input(c, in::cross_entropy::stats);
  const auto* targets = c.input<int32_t>(in::cross_entropy::targets);
  for (int64_t r = 0; r < rows; ++r) {
    RowSum all;
    double at_target = 0;
    auto of = [&](int64_t rank, int64_t k) { return stats[(rank * rows + r) * 3 + k]; };
    for (int64_t k = 0; k < stats.size(0); ++k) all.largest = std::max(all.largest, of(k, 0));
    for (int64_t k = 0; k < stats.size(0); ++k)
      all.sum += of(k, 1) * std::exp(of(k, 0) - all.largest), at_target += of(k, 2);
    output(c, out::cross_entropy::loss).set(r, targets[r] < 0 ? 0 : weight * (all.log() - at_target));
    output(c, out::cross_entropy::lse).set(r, all.log());
  }
}

// weight: of the step's scalars (core/scalars.h).
static double row_loss(const Logits& logits, int64_t row, int32_t target, double lse, double weight) {
  return target < 0 ? 0 : weight * (lse - logits[row * logits.shape().back() + target]);
}

// target: counted from the first column.
static void row_grad(const Logits& logits, const Tensor& dlogits, int64_t row, int64_t vocab, int64_t target,
                     bool counted, double lse, double scale) {
  int64_t width = logits.shape().back();
  for (int64_t j = 0; j < width; ++j) {
    int64_t e = row * width + j;
    const double softmax_less_one_hot = std::exp(logits[e] - lse) - (j == target ? 1 : 0);
    dlogits.set(e, counted && j < vocab ? softmax_less_one_hot * logits.slope(e) * scale : 0);
  }
}

void cross_entropy(const KernelCall& c) {
  const Logits logits(c);
  const auto* targets = c.input<int32_t>(in::cross_entropy::targets);
  int64_t vocab = c.instr.attrs.integer("vocab");
  double weight = c.has(in::cross_entropy::scalars) ? scalars(c, in::cross_entropy::scalars).loss_weight : 1;
  if (c.has(in::cross_entropy::stats)) return combine(c, logits.shape().rows(), weight);
  for (int64_t r = 0; r < logits.shape().rows(); ++r) {
    double lse = row_sum(logits, r, vocab).log();
    output(c, out::cross_entropy::loss).set(r, row_loss(logits, r, targets[r], lse, weight));
    output(c, out::cross_entropy::lse).set(r, lse);
  }
}

void cross_entropy_grad(const KernelCall& c) {
  const Logits logits(c);
  const Tensor lse = input(c, in::cross_entropy_grad::lse);
  const auto* targets = c.input<int32_t>(in::cross_entropy_grad::targets);
  double scale = c.instr.attrs.number("scale") * scalars(c, in::cross_entropy_grad::scalars).loss_scale *
                 scalars(c, in::cross_entropy_grad::scalars).loss_weight;
  const int64_t columns = logits.shape().back(), first = c.part_begin(columns), vocab = own_vocab(c, first, columns);
  for (int64_t r = 0; r < logits.shape().rows(); ++r)
    row_grad(logits, output(c, out::cross_entropy_grad::dlogits), r, vocab, targets[r] - first, targets[r] >= 0, lse[r],
             scale);
}

void cross_entropy_fused(const KernelCall& c) {
  const Logits logits(c);
  const auto* targets = c.input<int32_t>(in::cross_entropy_fused::targets);
  int64_t vocab = c.instr.attrs.integer("vocab");
  double weight = scalars(c, in::cross_entropy_fused::scalars).loss_weight;
  double scale = c.instr.attrs.number("scale") * scalars(c, in::cross_entropy_fused::scalars).loss_scale * weight;
  for (int64_t r = 0; r < logits.shape().rows(); ++r) {
    double lse = row_sum(logits, r, vocab).log();
    output(c, out::cross_entropy_fused::loss)
        .set(r, row_loss(logits, r, targets[r], lse, weight));  // before the gradient, which may overwrite the logits
    row_grad(logits, output(c, out::cross_entropy_fused::dlogits), r, vocab, targets[r], targets[r] >= 0, lse, scale);
  }
}

void sum_loss(const KernelCall& c) {
  Tensor loss = input(c, in::sum_loss::loss), acc = input(c, in::sum_loss::acc);
  double sum = 0;
  for (int64_t r = 0; r < loss.numel(); ++r) sum += loss[r];
  output(c, out::sum_loss::sum).set(0, sum * c.instr.attrs.number("scale") + so_far(acc, 0));
}

}  // namespace crest::reference
