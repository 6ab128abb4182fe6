// Updates over whole matrices: Adafactor's, and the initial norm of Muon.
#include <cmath>

#include "backend/cpu/common.h"
#include "backend/cpu/simd/optimizer.h"
#include "backend/cpu/simd/reduce.h"
#include "core/scalars.h"
#include "ops/index.h"

namespace crest::cpu {
namespace {

std::string reject(const KernelQuery& q) {
  for (size_t i = 1; i < q.instr.in.size(); ++i)
    if (q.has(i))
      if (std::string why = check_float(q.in(i)); !why.empty()) return why;
  return {};
}

const char* row_of(const KernelCall& c, size_t i, int64_t row) {
  return c.input<char>(i) + row * c.in_value(i).shape[1] * int64_t(size_of(c.in_value(i).dtype));
}

int row_threads(int threads, const Value& g) { return threads_for(threads, g.numel(), 1 << 14); }

// A row of column sums a thread; they are added in the order of the threads.
size_t moments_workspace(const KernelQuery& q) {
  const Value& g = q.in(in::factored_moments::g);
  return size_t(row_threads(q.device.threads, g)) * float_lines(g.shape[1]);
}

void launch_moments(const KernelCall& c) {
  auto* scalars = c.input<Scalars>(in::factored_moments::scalars);
  if (scalars->found_inf) return;
  const Value& g = c.in_value(in::factored_moments::g);
  int64_t rows = g.shape[0], cols = g.shape[1], stride = int64_t(float_lines(cols) / 4);
  const Attrs& attrs = c.instr.attrs;
  double keep = 1 - std::pow(double(scalars->adam_step + 1), -attrs.number("decay_rate")), eps = attrs.number("eps");
  float *row = c.output<float>(out::factored_moments::row), *col = c.output<float>(out::factored_moments::col),
        *sums = static_cast<float*>(c.workspace);
  int threads = row_threads(c.threads, g);
  const FactoredFunctions& f = CREST_SIMD_PICK(factored_functions);
#pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1)
  for (int t = 0; t < threads; ++t) {
    float* mine = sums + t * stride;
    std::fill(mine, mine + cols, 0.0f);
    for (int64_t i = part_begin(rows, t, threads), end = part_begin(rows, t + 1, threads); i < end; ++i) {
      double squares = f.row_squares(row_of(c, in::factored_moments::g, i), g.dtype, scalars->grad_factor, cols, mine);
      row[i] = float(keep * double(row[i]) + (1 - keep) * (squares / double(cols) + eps));
    }
  }
  for (int64_t j = 0; j < cols; ++j) {
    double squares = 0;
    for (int t = 0; t < threads; ++t) squares += double(sums[t * stride + j]);
    col[j] = float(keep * double(col[j]) + (1 - keep) * (squares / double(rows) + eps));
  }
}

// Reciprocal roots of rows (over their mean) and columns, and a sum of squares a row.
struct UpdateWorkspace {
  explicit UpdateWorkspace(const Value& g)
      : row(0),
        col(float_lines(g.shape[0])),
        squares(col + float_lines(g.shape[1])),
        bytes(squares + lines(size_t(g.shape[0]) * 8)) {}
  size_t row, col, squares, bytes;
};
size_t update_workspace(const KernelQuery& q) { return UpdateWorkspace(q.in(in::factored_update::g)).bytes; }

void launch_update(const KernelCall& c) {
  auto* scalars = c.input<Scalars>(in::factored_update::scalars);
  if (scalars->found_inf) return;
  const Value& g = c.in_value(in::factored_update::g);
  const float *rows_mean = c.input<float>(in::factored_update::row),
              *cols_mean = c.input<float>(in::factored_update::col);
  int64_t rows = g.shape[0], cols = g.shape[1];
  UpdateWorkspace at(g);
  auto* base = static_cast<char*>(c.workspace);
  auto *row = reinterpret_cast<float*>(base + at.row), *col = reinterpret_cast<float*>(base + at.col);
  auto* squares = reinterpret_cast<double*>(base + at.squares);
  double mean = 0, total = 0, momentum = c.instr.attrs.number("momentum", 0);
  // A step of the weights, or of a mean of updates.
  double lr = momentum > 0 ? momentum - 1 : double(scalars->lr) * c.instr.attrs.number("lr_factor", 1.0);
  for (int64_t i = 0; i < rows; ++i) mean += double(rows_mean[i]) / double(rows);
  for (int64_t i = 0; i < rows; ++i) row[i] = float(1 / std::sqrt(double(rows_mean[i]) / mean));
  for (int64_t j = 0; j < cols; ++j) col[j] = float(1 / std::sqrt(double(cols_mean[j])));
  int threads = row_threads(c.threads, g);
  const FactoredFunctions& f = CREST_SIMD_PICK(factored_functions);
#pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1)
  for (int64_t i = 0; i < rows; ++i)
    squares[i] =
        f.direction_squares(row_of(c, in::factored_update::g, i), g.dtype, scalars->grad_factor * row[i], cols, col);
  for (int64_t i = 0; i < rows; ++i) total += squares[i];
  double clip = std::max(1.0, std::sqrt(total / double(g.numel())) / c.instr.attrs.number("clip"));
  auto decay = float(momentum > 0 ? 1 - momentum : lr * c.instr.attrs.number("weight_decay"));
  DType copy = c.has(in::factored_update::w) ? c.in_value(in::factored_update::w).dtype : DType::f32;
#pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1)
  for (int64_t i = 0; i < rows; ++i)
    f.row_update(c.output<float>(out::factored_update::master) + i * cols, row_of(c, in::factored_update::g, i),
                 g.dtype, float(double(scalars->grad_factor * row[i]) * lr / clip), decay, cols, col,
                 c.has(in::factored_update::w)
                     ? c.output<char>(out::factored_update::w) + i * cols * int64_t(size_of(copy))
                     : nullptr,
                 copy);
}

constexpr int64_t chunk = 1 << 14;

size_t norm_workspace(const KernelQuery& q) {
  return lines(size_t((q.in(in::unit_norm::x).numel() + chunk - 1) / chunk) * 8);
}

void launch_norm(const KernelCall& c) {
  const Value &x = c.in_value(in::unit_norm::x), &y = c.out_value(out::unit_norm::y);
  int64_t n = x.numel(), chunks = (n + chunk - 1) / chunk;
  auto* parts = static_cast<double*>(c.workspace);
  int threads = threads_for(c.threads, n, chunk);
#pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1)
  for (int64_t p = 0; p < chunks; ++p)
    parts[p] = CREST_SIMD_PICK(reduce_functions)
                   .squares(c.input<char>(in::unit_norm::x) + p * chunk * int64_t(size_of(x.dtype)), x.dtype,
                            std::min(chunk, n - p * chunk));
  double squares = 0;
  for (int64_t p = 0; p < chunks; ++p) squares += parts[p];
  auto factor = float(1 / (std::sqrt(squares) + c.instr.attrs.number("eps")));
#pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1)
  for (int64_t p = 0; p < chunks; ++p)
    CREST_SIMD_PICK(optimizer_functions)
        .scale(c.in[in::unit_norm::x], x.dtype, c.out[out::unit_norm::y], y.dtype, factor, p * chunk,
               std::min((p + 1) * chunk, n));
}

}  // namespace

Kernel factored_moments_kernel() {
  return {"factored_moments", "cpu.factored_moments.simd", reject, moments_workspace, nullptr, launch_moments};
}
Kernel factored_update_kernel() {
  return {"factored_update", "cpu.factored_update.simd", reject, update_workspace, nullptr, launch_update};
}
Kernel unit_norm_kernel() {
  return {"unit_norm", "cpu.unit_norm.simd", check_all_float, norm_workspace, nullptr, launch_norm};
}

}  // namespace crest::cpu
