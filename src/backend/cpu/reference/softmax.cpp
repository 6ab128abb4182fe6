// Softmax of rows and its gradient.
#include <algorithm>
#include <cmath>

#include "backend/cpu/reference/kernels.h"
#include "backend/cpu/reference/tensor.h"

namespace crest::reference {

void softmax(const KernelCall& c) {
  Tensor x = input(c, 0), y = output(c, 0);
  int64_t rows = x.shape().rows(), width = x.shape().back();
  for (int64_t r = 0; r < rows; ++r) {
    double largest = -INFINITY, sum = 0;
    for (int64_t j = 0; j < width; ++j) largest = std::max(largest, x[r * width + j]);
    for (int64_t j = 0; j < width; ++j) sum += std::exp(x[r * width + j] - largest);
    for (int64_t j = 0; j < width; ++j) y.set(r * width + j, std::exp(x[r * width + j] - largest) / sum);
  }
}

void softmax_grad(const KernelCall& c) {
  Tensor dy = input(c, 0), y = input(c, 1), dx = output(c, 0);
  int64_t rows = y.shape().rows(), width = y.shape().back();
  for (int64_t r = 0; r < rows; ++r) {
    double dot = 0;
    for (int64_t j = 0; j < width; ++j) dot += dy[r * width + j] * y[r * width + j];
    for (int64_t j = 0; j < width; ++j) {
      int64_t e = r * width + j;
      dx.set(e, y[e] * (dy[e] - dot));
    }
  }
}

}  // namespace crest::reference
