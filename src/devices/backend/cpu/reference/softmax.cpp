// Softmax of rows and its gradient.
#include <algorithm>
#include <cmath>

#include "backend/cpu/reference/kernels.h"
#include "backend/cpu/reference/tensor.h"
#include "ops/index.h"

namespace crest::reference {

// Number of leading elements of row r that count: all, or up to the diagonal of causal scores.
static int64_t visible(const KernelCall& c, int64_t r, int64_t width) {
  return c.instr.attrs.integer("causal", 0) ? r % width + 1 : width;
}

void softmax(const KernelCall& c) {
  Tensor x = input(c, in::softmax::x), y = output(c, out::softmax::y);
  int64_t rows = x.shape().rows(), width = x.shape().back();
  double scale = c.instr.attrs.number("scale", 1);
  for (int64_t r = 0; r < rows; ++r) {
    int64_t n = visible(c, r, width), begin = r * width;
    double largest = -INFINITY, sum = 0;
    for (int64_t j = 0; j < n; ++j) largest = std::max(largest, scale * x[begin + j]);
    for (int64_t j = 0; j < n; ++j) sum += std::exp(scale * x[begin + j] - largest);
    for (int64_t j = 0; j < n; ++j) y.set(begin + j, std::exp(scale * x[begin + j] - largest) / sum);
    for (int64_t j = n; j < width; ++j) y.set(begin + j, 0);
  }
}

void softmax_grad(const KernelCall& c) {
  Tensor dy = input(c, in::softmax_grad::dy), y = input(c, in::softmax_grad::y), dx = output(c, out::softmax_grad::dx);
  int64_t rows = y.shape().rows(), width = y.shape().back();
  double scale = c.instr.attrs.number("scale", 1);
  for (int64_t r = 0; r < rows; ++r) {
    int64_t begin = r * width, end = begin + visible(c, r, width);
    double dot = 0;
    for (int64_t e = begin; e < end; ++e) dot += dy[e] * y[e];
    for (int64_t e = begin; e < end; ++e) dx.set(e, scale * y[e] * (dy[e] - dot));
    for (int64_t e = end; e < begin + width; ++e) dx.set(e, 0);
  }
}

}  // namespace crest::reference
