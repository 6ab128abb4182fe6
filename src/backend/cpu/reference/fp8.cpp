// Quantization to 8-bit floats, their matmul, and the history of their scales.
#include <algorithm>
#include <cfloat>
#include <cmath>

#include "backend/cpu/reference/kernels.h"
#include "backend/cpu/reference/tensor.h"
#include "comm/comm.h"
#include "core/float8.h"
#include "ops/fp8.h"
#include "ops/index.h"

namespace crest::reference {

namespace {

DType format(const KernelCall& c) { return *parse_dtype(c.instr.attrs.text("format")); }

// The scale 2^e with the smallest e for which amax 2^margin is at most the format's largest number.
double scale_of(double amax, double largest, int64_t margin) {
  int64_t e = int64_t(std::ceil(std::log2(amax / largest))) + margin;
  return std::ldexp(1.0, int(std::clamp<int64_t>(e, -60, 60)));
}

double largest(DType t) { return t == DType::e4m3 ? 448 : 57344; }

bool usable(double amax) { return amax > 0 && amax <= double(FLT_MAX); }

void write_columns(const Tensor& x, const Tensor& t, double scale) {
  int64_t columns = x.shape().back(), rows = x.numel() / columns, width = t.size(1);
  for (int64_t c = 0; c < columns; ++c)
    for (int64_t r = 0; r < width; ++r) t.set(c * width + r, r < rows ? x[r * columns + c] / scale : 0);
}

}  // namespace

void quantize(const KernelCall& c) {
  namespace at = in::quantize;
  namespace to = out::quantize;
  Tensor x = input(c, at::x), q = output(c, to::q), record = output(c, to::record), counts = output(c, to::counts);
  int64_t slot = c.instr.attrs.integer("slot"), ranks = record.size(1);
  double before = input(c, at::amax)[slot], now = 0, most = largest(format(c));
  for (int64_t i = 0; i < x.numel(); ++i) now = std::max(now, std::isnan(x[i]) ? 0 : std::fabs(x[i]));
  double scale = usable(before) ? scale_of(before, most, c.instr.attrs.integer("margin"))
                 : usable(now)  ? scale_of(now, most, 0)
                                : 1;
  int64_t saturated = 0, vanished = 0;
  for (int64_t i = 0; i < x.numel(); ++i) {
    q.set(i, x[i] / scale);
    saturated += std::fabs(x[i] / scale) > most;
    vanished += x[i] != 0 && q[i] == 0;
  }
  output(c, to::scale).set(0, scale);
  int64_t own = slot * ranks + (c.communicator ? c.communicator->rank() : 0);
  record.set(own, std::max(record[own], now));
  counts.set(2 * slot, counts[2 * slot] + double(saturated));
  counts.set(2 * slot + 1, counts[2 * slot + 1] + double(vanished));
  if (c.instr.out.size() > to::t) write_columns(x, output(c, to::t), scale);
}

void quantize_columns(const KernelCall& c) {
  namespace at = in::quantize_columns;
  write_columns(input(c, at::x), output(c, out::quantize_columns::t), input(c, at::scale)[0]);
}

void linear_fp8(const KernelCall& c) {
  namespace at = in::linear_fp8;
  auto x = input(c, at::x).values(), w = input(c, at::w).values();
  double scale = input(c, at::x_scale)[0] * input(c, at::w_scale)[0];
  Tensor b = input(c, at::b), acc = input(c, at::acc), y = output(c, out::linear_fp8::y);
  size_t n = size_t(input(c, at::w).size(0)), k = size_t(input(c, at::w).size(1)), m = x.size() / k;
  for (size_t i = 0; i < m; ++i)
    for (size_t j = 0; j < n; ++j) {
      double sum = 0;
      for (size_t l = 0; l < k; ++l) sum += x[i * k + l] * w[j * k + l];
      y.set(int64_t(i * n + j), sum * scale + so_far(b, int64_t(j)) + so_far(acc, int64_t(i * n + j)));
    }
}

void amax_history(const KernelCall& c) {
  namespace to = out::amax_history;
  Tensor amax = output(c, to::amax), record = output(c, to::record), counts = output(c, to::counts),
         lost = output(c, to::lost);
  int64_t ranks = record.size(1);
  double sums[2] = {0, 0};
  for (int64_t s = 0; s < amax.numel(); ++s) {
    double most = 0;
    for (int64_t r = 0; r < ranks; ++r) {
      most = std::max(most, record[s * ranks + r]);
      record.set(s * ranks + r, 0);
    }
    if (most <= double(FLT_MAX)) amax.set(s, most);
    for (int k = 0; k < 2; ++k) {
      sums[k] += counts[2 * s + k];
      counts.set(2 * s + k, 0);
    }
  }
  for (int k = 0; k < 2; ++k) lost.set(k, sums[k]);
}

}  // namespace crest::reference
