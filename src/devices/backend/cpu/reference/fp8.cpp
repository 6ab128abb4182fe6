// Quantization to 8-bit floats, their matmul, and the history of their scales.
#include <algorithm>
#include <cfloat>
#include <cmath>

#include "backend/cpu/reference/dropout.h"
#include "backend/cpu/reference/kernels.h"
#include "core/float8.h"
#include "ops/fp8.h"
#include "ops/index.h"
#include "ops/quantized_norms.h"

namespace crest::reference {

namespace {

DType format(const Instr& instr) { return *parse_dtype(instr.attrs.text("format")); }

// The scale 2^e with the smallest e such that amax 2^margin fits the format.
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

// The scale of x, q and t (null: not wanted) and the tables: inputs and outputs of the call from
// `amax` and `record` on.
void quantize_values(const KernelCall& c, const Tensor& x, size_t amax, size_t q_out, const Tensor* t) {
  Tensor q = output(c, q_out), record = output(c, q_out + 2), counts = output(c, q_out + 3);
  int64_t slot = c.instr.attrs.integer("slot"), ranks = record.size(1);
  int64_t own = slot * ranks + c.index();
  double before = input(c, amax)[slot], now = 0, most = largest(format(c.instr));
  for (int64_t i = 0; i < x.numel(); ++i) now = std::max(now, std::isnan(x[i]) ? 0 : std::fabs(x[i]));
  now = std::max(record[own], now);
  double scale = usable(before) ? scale_of(before, most, c.instr.attrs.integer("margin"))
                 : usable(now)  ? scale_of(now, most, 0)
                                : 1;
  int64_t saturated = 0, vanished = 0;
  for (int64_t i = 0; i < x.numel(); ++i) {
    q.set(i, x[i] / scale);
    saturated += std::fabs(x[i] / scale) > most;
    vanished += x[i] != 0 && q[i] == 0;
  }
  output(c, q_out + 1).set(0, scale);
  record.set(own, now);
  counts.set(2 * slot, counts[2 * slot] + double(saturated));
  counts.set(2 * slot + 1, counts[2 * slot + 1] + double(vanished));
  if (t) write_columns(x, *t, scale);
}

// q of a [rows,columns] with element (r, c) = x[r row_step + c column_step], padded with zeros to
// the width of q, and a scale for each block.
struct Lost {
  int64_t saturated = 0, vanished = 0;
};
Lost write_blocks(const KernelCall& c, const Tensor& x, int64_t rows, int64_t columns, int64_t row_step,
                  int64_t column_step, const Tensor& q, const Tensor& scales, Fp8Blocks blocks) {
  const double most = largest(format(c.instr));
  const int64_t height = blocks == Fp8Blocks::squares ? fp8_block : 1, width = q.numel() / rows;
  const Fp8ScalePlace place(blocks, scales.shape());
  Lost lost;
  for (int64_t i = 0; i < scales.numel(); ++i) scales.set(i, 0);
  for (int64_t i = 0; i < q.numel(); ++i) q.set(i, 0);
  for (int64_t top = 0; top < rows; top += height)
    for (int64_t left = 0; left < columns; left += fp8_block) {
      auto each = [&](auto body) {
        for (int64_t r = top; r < std::min(rows, top + height); ++r)
          for (int64_t k = left; k < std::min(columns, left + fp8_block); ++k)
            body(x[r * row_step + k * column_step], r * width + k);
      };
      double amax = 0;
      each([&](double value, int64_t) { amax = std::max(amax, std::isnan(value) ? 0 : std::fabs(value)); });
      const double scale = usable(amax) ? scale_of(amax, most, 0) : 1;
      scales.set(place(top, left), scale);
      each([&](double value, int64_t to) {
        q.set(to, value / scale);
        lost.saturated += std::fabs(value / scale) > most;
        lost.vanished += value != 0 && q[to] == 0;
      });
    }
  return lost;
}

// The outputs of quantize_blocks (the first of the call), without the transpose.
void write_blocks_of_rows(const KernelCall& c, const Tensor& x) {
  namespace to = out::quantize_blocks;
  Tensor counts = output(c, to::counts);
  const int64_t columns = x.shape().back(), rows = x.numel() / columns, slot = c.instr.attrs.integer("slot");
  Lost lost =
      write_blocks(c, x, rows, columns, columns, 1, output(c, to::q), output(c, to::scale), fp8_blocks(c.instr.attrs));
  counts.set(2 * slot, counts[2 * slot] + double(lost.saturated));
  counts.set(2 * slot + 1, counts[2 * slot + 1] + double(lost.vanished));
}
// The transpose, and its scales in the output behind it.
void write_blocks_of_columns(const KernelCall& c, const Tensor& x, size_t t) {
  const int64_t columns = x.shape().back(), rows = x.numel() / columns;
  write_blocks(c, x, columns, rows, 1, columns, output(c, t), output(c, t + 1), fp8_blocks(c.instr.attrs));
}

// The norm of x from its statistics, rounded to the dtype of x as a norm's output is.
struct Normalized {
  std::vector<double> bytes;  // room for the values in any dtype
  Tensor y;
  Normalized(const Tensor& x, const Value& like, const Tensor& gamma, const Tensor& beta, const Tensor& rstd,
             const Tensor& mean)
      : bytes(size_t(x.numel())), y(bytes.data(), like) {
    int64_t width = x.shape().back();
    for (int64_t i = 0; i < x.numel(); ++i) {
      int64_t r = i / width, j = i % width;
      y.set(i, (x[i] - so_far(mean, r)) * rstd[r] * factor(gamma, j) + so_far(beta, j));
    }
  }
};

}  // namespace

void quantize(const KernelCall& c) {
  namespace to = out::quantize;
  Tensor t = c.instr.out.size() > to::t ? output(c, to::t) : Tensor();
  quantize_values(c, input(c, in::quantize::x), in::quantize::amax, to::q, t ? &t : nullptr);
}

void quantize_rows(const KernelCall& c) {
  Tensor x = input(c, in::quantize_rows::x), q = output(c, out::quantize_rows::q),
         scales = output(c, out::quantize_rows::scale);
  int64_t width = x.shape().back();
  for (int64_t r = 0; r < scales.numel(); ++r) {
    double most = 0;
    for (int64_t i = r * width; i < (r + 1) * width; ++i) most = std::max(most, std::isnan(x[i]) ? 0 : std::fabs(x[i]));
    double scale = usable(most) ? scale_of(most, largest(DType::e4m3), 0) : 1;
    scales.set(r, scale);
    for (int64_t i = r * width; i < (r + 1) * width; ++i) q.set(i, x[i] / scale);
  }
}

void quantize_columns(const KernelCall& c) {
  namespace at = in::quantize_columns;
  write_columns(input(c, at::x), output(c, out::quantize_columns::t), input(c, at::scale)[0]);
}

void quantize_blocks(const KernelCall& c) {
  namespace to = out::quantize_blocks;
  Tensor x = input(c, in::quantize_blocks::x);
  write_blocks_of_rows(c, x);
  if (c.instr.out.size() > to::t) write_blocks_of_columns(c, x, to::t);
}

void quantize_blocks_columns(const KernelCall& c) {
  write_blocks_of_columns(c, input(c, in::quantize_blocks_columns::x), out::quantize_blocks_columns::t);
}

void norm_quantize(const KernelCall& c) {
  namespace at = in::norm_quantize;
  namespace to = out::norm_quantize;
  const size_t statistics = norm_quantize_rstd(c.instr.attrs);
  Tensor x = input(c, at::a), b = input(c, at::b), rstd = output(c, statistics), mean;
  if (b) {  // the norm of the rounded sum
    Tensor s = output(c, c.instr.out.size() - 1);
    Dropout dropped(c, at::scalars, s.shape());
    for (int64_t i = 0; i < x.numel(); ++i) s.set(i, x[i] + rounded(c.in_value(at::b).dtype, dropped(i, b[i])));
    x = s;
  }
  if (c.instr.attrs.text("kind") == "layer") mean = output(c, statistics + 1);
  int64_t width = x.shape().back();
  for (int64_t r = 0; r < x.shape().rows(); ++r) {
    double average = 0, square = 0;
    for (int64_t j = 0; mean && j < width; ++j) average += x[r * width + j] / double(width);
    if (mean) mean.set(r, average);
    for (int64_t j = 0; j < width; ++j) square += std::pow(x[r * width + j] - average, 2);
    rstd.set(r, 1 / std::sqrt(square / double(width) + c.instr.attrs.number("eps")));
  }
  Normalized y(x, c.in_value(at::a), input(c, at::gamma), input(c, at::beta), rstd, mean);
  if (fp8_blocks(c.instr.attrs) != Fp8Blocks::none) return write_blocks_of_rows(c, y.y);
  quantize_values(c, y.y, at::amax, to::q, nullptr);
}

void norm_quantize_columns(const KernelCall& c) {
  namespace at = in::norm_quantize_columns;
  Normalized y(input(c, at::x), c.in_value(at::x), input(c, at::gamma), input(c, at::beta), input(c, at::rstd),
               input(c, at::mean));
  if (fp8_blocks(c.instr.attrs) != Fp8Blocks::none)
    return write_blocks_of_columns(c, y.y, out::norm_quantize_columns::t);
  write_columns(y.y, output(c, out::norm_quantize_columns::t), input(c, at::scale)[0]);
}

void linear_fp8(const KernelCall& c) {
  namespace at = in::linear_fp8;
  Tensor b = input(c, at::b), acc = input(c, at::acc), y = output(c, out::linear_fp8::y);
  const size_t n = size_t(input(c, at::w).size(0)), k = size_t(input(c, at::w).size(1));
  auto scaled = [&](size_t operand, size_t scale, Fp8Blocks blocks) {
    std::vector<double> values = input(c, operand).values();
    const Tensor scales = input(c, scale);
    const Fp8ScalePlace place(blocks, scales.shape());
    for (size_t i = 0; i < values.size(); ++i) values[i] *= scales[place(int64_t(i / k), int64_t(i % k))];
    return values;
  };
  const Fp8Blocks blocks = fp8_blocks(c.instr.attrs);
  auto x = scaled(at::x, at::x_scale, fp8_blocks_of_x(blocks)), w = scaled(at::w, at::w_scale, blocks);
  const size_t m = x.size() / k;
  for (size_t i = 0; i < m; ++i)
    for (size_t j = 0; j < n; ++j) {
      double sum = 0;
      for (size_t l = 0; l < k; ++l) sum += x[i * k + l] * w[j * k + l];
      y.set(int64_t(i * n + j), sum + so_far(b, int64_t(j)) + so_far(acc, int64_t(i * n + j)));
    }
}

void amax_history(const KernelCall& c) {
  namespace to = out::amax_history;
  Tensor amax = output(c, to::amax), record = output(c, to::record), counts = output(c, to::counts),
         lost = output(c, to::lost);
  int64_t ranks = record.size(1), steps = amax.size(0), slots = amax.size(1);
  for (int64_t s = 0; s < slots; ++s) {
    double step = 0, most = 0;
    for (int64_t r = 0; r < ranks; ++r) {
      step = std::max(step, record[s * ranks + r]);
      record.set(s * ranks + r, 0);
    }
    if (!(step <= double(FLT_MAX))) step = amax[s];
    for (int64_t h = 1; h < steps; ++h) most = std::max(most, amax[h * slots + s]);
    for (int64_t h = steps - 1; h > 0; --h) amax.set(h * slots + s, h > 1 ? amax[(h - 1) * slots + s] : step);
    amax.set(s, std::max(most, step));
    for (int k = 0; k < 2; ++k) {
      lost.set(2 * s + k, counts[2 * s + k]);
      counts.set(2 * s + k, 0);
    }
  }
}

void take_counts(const KernelCall& c) {
  Tensor counts = output(c, out::take_counts::counts), lost = output(c, out::take_counts::lost);
  for (int64_t i = 0; i < counts.numel(); ++i) lost.set(i, counts[i]), counts.set(i, 0);
}

}  // namespace crest::reference
