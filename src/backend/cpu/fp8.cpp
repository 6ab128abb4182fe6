// quantize, quantize_columns, linear_fp8, amax_history. CPUs have no 8-bit floats: operands are
// converted by Crest, exactly as a GPU does, and multiplied as f32, which holds them and their
// scales exactly.
#include <cfloat>
#include <cmath>
#include <cstring>
#include <vector>

#include "backend/cpu/common.h"
#include "backend/cpu/dropout.h"
#include "backend/cpu/fp8.h"
#include "backend/cpu/gemm.h"
#include "backend/cpu/simd/norm.h"
#include "comm/comm.h"
#include "core/float8.h"
#include "ops/fp8.h"
#include "ops/index.h"
#include "ops/quantized_norms.h"
#include "program/op.h"

namespace crest::cpu {
namespace {

constexpr int64_t grain = 1 << 14;
constexpr int64_t tile = 32;  // rows and columns that are transposed at once

struct Found {
  float amax = 0;
  int64_t saturated = 0, vanished = 0;
};

bool usable(float amax) { return amax > 0 && amax <= FLT_MAX; }

// Calls row(r, floats, thread) for all rows of x, in parallel over blocks of rows.
template <class Row>
void each_row(const void* x, const Value& v, int threads, float* scratch, Row row) {
  int64_t rows = v.shape.rows(), columns = v.shape.back(), blocks = (rows + tile - 1) / tile;
  threads = threads_for(threads, v.numel(), grain);
#pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1)
  for (int t = 0; t < threads; ++t)
    for (int64_t r = part_begin(blocks, t, threads) * tile;
         r < std::min(rows, part_begin(blocks, t + 1, threads) * tile); ++r) {
      const char* from = static_cast<const char*>(x) + r * columns * int64_t(size_of(v.dtype));
      row(r, floats_of(from, v.dtype, columns, scratch + t * columns), t);
    }
}

// A tensor in memory, and room for a row of floats for each thread.
struct Rows {
  const void* data;
  const Value& value;
  int threads;
  float* scratch;
};

size_t scratch_bytes(const KernelQuery& q) { return quantize_scratch(q.in(0), q.device.threads); }

float amax_of(const Rows& x) {
  std::vector<float> most(size_t(std::max(x.threads, 1)));
  each_row(x.data, x.value, x.threads, x.scratch, [&](int64_t, const float* row, int t) {
    float m = most[size_t(t)];
    for (int64_t i = 0; i < x.value.shape.back(); ++i) {
      float a = std::fabs(row[i]);
      m = a > m ? a : m;  // false for NaN
    }
    most[size_t(t)] = m;
  });
  return *std::max_element(most.begin(), most.end());
}

// rows: q; columns: its transpose, padded with zeros. Either may be null.
template <class F>
Found convert(const Rows& x, float scale, F* rows, F* columns) {
  const int64_t width = x.value.shape.back(), height = x.value.shape.rows(), pitch = fp8_padded(height);
  const float inverse = 1 / scale;
  std::vector<Found> parts(size_t(std::max(x.threads, 1)));
  each_row(x.data, x.value, x.threads, x.scratch, [&](int64_t r, const float* row, int t) {
    Found f = parts[size_t(t)];
    for (int64_t i = 0; i < width; ++i) {
      float a = std::fabs(row[i]), scaled = row[i] * inverse;
      f.amax = a > f.amax ? a : f.amax;
      F code = to_float8<F>(scaled);
      f.saturated += saturates<F>(scaled);
      f.vanished += vanishes(row[i], code);
      if (rows) rows[r * width + i] = code;
      if (columns) columns[i * pitch + r] = code;
    }
    parts[size_t(t)] = f;
  });
  if (columns && pitch > height)
    for (int64_t i = 0; i < width; ++i) std::memset(columns + i * pitch + height, 0, size_t(pitch - height));
  Found all;
  for (auto& f : parts) {
    all.amax = std::max(all.amax, f.amax);
    all.saturated += f.saturated, all.vanished += f.vanished;
  }
  return all;
}

std::string reject_quantize(const KernelQuery& q) {
  if (std::string why = check_float(q.in(in::quantize::x)); !why.empty()) return why;
  for (size_t i : {size_t(in::quantize::amax), size_t(in::quantize::record)})
    if (q.in(i).dtype != DType::f32) return "takes scales of f32";
  return q.in(in::quantize::x).numel() == 0 ? "an empty operand" : "";
}

// What quantize makes of x. The inputs from `amax` on and the outputs from `q` on are its own.
void quantize_rows(const KernelCall& c, const Rows& x, size_t amax, size_t q, void* columns) {
  const Attrs& attrs = c.instr.attrs;
  int64_t slot = attrs.integer("slot"), ranks = c.in_value(amax + 1).shape[1];
  with_float8(c.out_value(q).dtype, [&](auto format) {
    using F = decltype(format);
    float& record = c.output<float>(q + 2)[slot * ranks + (c.communicator ? c.communicator->rank() : 0)];
    float before = c.input<float>(amax)[slot];
    int e = 0;
    if (usable(before))
      e = scale_exponent<F>(before, int(attrs.integer("margin")));
    else if (float now = std::max(record, amax_of(x)); usable(now))
      e = scale_exponent<F>(now, 0);
    float scale = power_of_two(e);
    *c.output<float>(q + 1) = scale;
    Found f = convert(x, scale, c.output<F>(q), static_cast<F*>(columns));
    record = std::max(record, f.amax);
    auto* counts = c.output<int64_t>(q + 3) + 2 * slot;
    counts[0] += f.saturated, counts[1] += f.vanished;
  });
}

void launch_quantize(const KernelCall& c) {
  namespace at = in::quantize;
  namespace to = out::quantize;
  quantize_rows(c, {c.in[at::x], c.in_value(at::x), c.threads, static_cast<float*>(c.workspace)}, at::amax, to::q,
                c.instr.out.size() > to::t ? c.out[to::t] : nullptr);
}

std::string reject_columns(const KernelQuery& q) {
  if (std::string why = check_float(q.in(in::quantize_columns::x)); !why.empty()) return why;
  if (q.in(in::quantize_columns::scale).dtype != DType::f32) return "takes a scale of f32";
  return q.in(in::quantize_columns::x).numel() == 0 ? "an empty operand" : "";
}

void columns_of(const KernelCall& c, const Rows& x, float scale) {
  with_float8(c.out_value(0).dtype, [&](auto format) {
    using F = decltype(format);
    convert<F>(x, scale, nullptr, c.output<F>(0));
  });
}

void launch_columns(const KernelCall& c) {
  namespace at = in::quantize_columns;
  columns_of(c, {c.in[at::x], c.in_value(at::x), c.threads, static_cast<float*>(c.workspace)},
             *c.input<float>(at::scale));
}

// A norm's output in the workspace, quantized from there: the bits of norm, and of quantize or
// quantize_columns.
std::string reject_norm(const KernelQuery& q, std::initializer_list<size_t> scales) {
  for (size_t i : {0, 1})  // x and gamma
    if (std::string why = check_float(q.in(i)); !why.empty()) return why;
  for (size_t i : scales)
    if (q.in(i).dtype != DType::f32) return "takes scales of f32";
  return q.in(0).numel() == 0 ? "an empty operand" : "";
}
std::string reject_norm_rows(const KernelQuery& q) {
  return reject_norm(q, {in::norm_quantize::amax, in::norm_quantize::record});
}
std::string reject_norm_columns(const KernelQuery& q) { return reject_norm(q, {in::norm_quantize_columns::scale}); }

size_t norm_floats(const Value& x) { return float_lines(2 * x.shape.back()); }

size_t norm_workspace(const KernelQuery& q) {
  const Value& x = q.in(0);
  return lines(size_t(x.bytes())) + norm_floats(x) * size_t(q.device.threads + 1) +
         quantize_scratch(x, q.device.threads);
}

// The norm of input 0, with gamma and beta, by one of the functions; what is left to do with it.
Rows normalise(const KernelCall& c, NormArgs a, size_t beta, void (*rows)(const NormArgs&, int64_t, int64_t, float*)) {
  const Value& x = c.in_value(0);
  auto* y = static_cast<char*>(c.workspace);
  auto* weights = reinterpret_cast<float*>(y + lines(size_t(x.bytes())));
  char* scratch = reinterpret_cast<char*>(weights) + norm_floats(x);
  a.x = c.in[0], a.y = y;
  a.cols = x.shape.back();
  a.dtype = x.dtype;
  a.gamma = floats_of(c.in[1], x.dtype, a.cols, weights);
  a.beta = c.has(beta) ? floats_of(c.in[beta], x.dtype, a.cols, weights + a.cols) : nullptr;
  const int64_t height = x.shape.rows();
  const int threads = threads_for(c.threads, height * a.cols, 8192);
#pragma omp parallel for num_threads(threads) schedule(static)
  for (int t = 0; t < threads; ++t)
    rows(a, part_begin(height, t, threads), part_begin(height, t + 1, threads),
         reinterpret_cast<float*>(scratch + size_t(t) * norm_floats(x)));
  scratch += size_t(c.device->threads) * norm_floats(x);
  return {y, x, c.threads, reinterpret_cast<float*>(scratch)};
}

void launch_norm_rows(const KernelCall& c) {
  namespace at = in::norm_quantize;
  namespace to = out::norm_quantize;
  static_assert(at::gamma == 1 && in::norm_quantize_columns::gamma == 1);
  NormArgs a{};
  if (c.has(at::b)) a.b = c.in[at::b], a.s = c.out[c.instr.out.size() - 1];
  a.dropout = dropout_rows(c, at::scalars, c.in_value(at::a));
  a.rstd = c.output<float>(to::rstd);
  if (c.instr.attrs.text("kind") == "layer") a.mean = c.output<float>(to::mean);
  a.eps = float(c.instr.attrs.number("eps"));
  quantize_rows(c, normalise(c, a, at::beta, CREST_SIMD_PICK(norm_functions).forward), at::amax, to::q, nullptr);
}

void launch_norm_columns(const KernelCall& c) {
  namespace at = in::norm_quantize_columns;
  NormArgs a{};
  a.rstd = const_cast<float*>(c.input<float>(at::rstd));
  if (c.has(at::mean)) a.mean = const_cast<float*>(c.input<float>(at::mean));
  columns_of(c, normalise(c, a, at::beta, CREST_SIMD_PICK(norm_functions).apply), *c.input<float>(at::scale));
}

// What launch_product needs, in floats: both operands, and the result where it is not f32.
struct Product {
  int64_t m, n, k;
  bool direct;  // the result is f32 without a bias
  size_t x_bytes() const { return float_lines(m * k); }
  size_t w_bytes() const { return float_lines(n * k); }
  size_t y_bytes() const { return direct ? 0 : float_lines(m * n); }
};

Product product_of(const Program& p, const Instr& i) {
  namespace at = in::linear_fp8;
  const Value &x = p.at(i.in[at::x]), &w = p.at(i.in[at::w]);
  bool bias = i.in.size() > at::b && i.in[at::b] != no_value;
  return {x.shape.rows(), w.shape[0], w.shape[1], p.at(i.out[0]).dtype == DType::f32 && !bias};
}

GemmShape gemm_of(const KernelQuery& q, const Product& p) {
  GemmShape g;
  g.m = p.m, g.n = p.n, g.k = p.k;
  g.b_transposed = true;
  g.lda = g.ldb = p.k, g.ldc = p.n;
  g.accumulate = p.direct && q.has(in::linear_fp8::acc);
  g.threads = q.device.threads;
  return g;
}

std::string reject_product(const KernelQuery& q) {
  namespace at = in::linear_fp8;
  for (size_t i : {size_t(at::x_scale), size_t(at::w_scale)})
    if (q.in(i).dtype != DType::f32) return "takes scales of f32";
  if (std::string why = check_float(q.out(0)); !why.empty()) return why;
  if (q.has(at::b))
    if (std::string why = check_float(q.in(at::b)); !why.empty()) return why;
  if (q.in(at::x).numel() == 0 || q.in(at::w).numel() == 0) return "empty operands";
  return find_gemm(gemm_of(q, product_of(q.program, q.instr)), q.device).refused;
}

size_t product_workspace(const KernelQuery& q) {
  Product p = product_of(q.program, q.instr);
  return p.x_bytes() + p.w_bytes() + p.y_bytes() + find_gemm(gemm_of(q, p), q.device).gemm->workspace();
}

std::shared_ptr<void> prepare_product(const KernelQuery& q) {
  return std::make_shared<std::shared_ptr<const Gemm>>(
      find_gemm(gemm_of(q, product_of(q.program, q.instr)), q.device).gemm);
}

// The numbers of a [rows,columns].
void dequantize(float* to, const void* from, DType t, const float* scales, const Fp8ScalePlace& place, int64_t rows,
                int64_t columns, int threads) {
  float table[256];
  for (int i = 0; i < 256; ++i) {
    auto code = uint8_t(i);
    table[i] = t == DType::e4m3 ? to_float(float8_e4m3{code}) : to_float(float8_e5m2{code});
  }
  auto* codes = static_cast<const uint8_t*>(from);
  threads = threads_for(threads, rows * columns, grain);
#pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1)
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < columns; c += fp8_block) {
      const float scale = scales[place(r, c)];
      for (int64_t i = r * columns + c, end = r * columns + std::min(columns, c + fp8_block); i < end; ++i)
        to[i] = scale * table[codes[i]];
    }
}

void launch_product(const KernelCall& c) {
  namespace at = in::linear_fp8;
  Product p = product_of(c.program, c.instr);
  auto* x = static_cast<char*>(c.workspace);
  char *w = x + p.x_bytes(), *y = w + p.w_bytes(), *rest = y + p.y_bytes();
  const Fp8Blocks blocks = fp8_blocks(c.instr.attrs);
  auto operand = [&](char* to, size_t i, size_t scale, Fp8Blocks of, int64_t rows) {
    dequantize(reinterpret_cast<float*>(to), c.in[i], c.in_value(i).dtype, c.input<float>(scale),
               {of, c.in_value(scale).shape}, rows, p.k, c.threads);
  };
  operand(x, at::x, at::x_scale, fp8_blocks_of_x(blocks), p.m);
  operand(w, at::w, at::w_scale, blocks, p.n);
  auto& gemm = *static_cast<const std::shared_ptr<const Gemm>*>(c.prepared);
  const Value& result = c.out_value(0);
  const void* acc = c.has(at::acc) ? c.in[at::acc] : nullptr;
  if (p.direct) {
    if (acc && acc != c.out[0]) std::memcpy(c.out[0], acc, size_t(result.bytes()));
    return gemm->run(x, w, nullptr, c.out[0], rest);
  }
  gemm->run(x, w, nullptr, y, rest);
  auto* sums = reinterpret_cast<float*>(y);
  if (c.has(at::b)) {
    std::vector<float> scratch(size_t(p.n));
    const float* bias = floats_of(c.in[at::b], c.in_value(at::b).dtype, p.n, scratch.data());
    int threads = threads_for(c.threads, p.m * p.n, grain);
#pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1)
    for (int64_t i = 0; i < p.m; ++i)
      for (int64_t j = 0; j < p.n; ++j) sums[i * p.n + j] += bias[j];
  }
  int threads = threads_for(c.threads, p.m * p.n, grain);
#pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1)
  for (int t = 0; t < threads; ++t) {
    int64_t begin = part_begin(p.m, t, threads) * p.n, end = part_begin(p.m, t + 1, threads) * p.n;
    store_floats(c.out[0], result.dtype, begin, end, sums, acc);
  }
}

std::string reject_history(const KernelQuery& q) {
  return q.in(in::amax_history::amax).dtype == DType::f32 && q.in(in::amax_history::record).dtype == DType::f32
             ? ""
             : "takes scales of f32";
}

void launch_history(const KernelCall& c) {
  namespace to = out::amax_history;
  const Value& table = c.in_value(in::amax_history::amax);
  int64_t steps = table.shape[0], slots = table.shape[1], ranks = c.in_value(in::amax_history::record).shape[1];
  auto *amax = c.output<float>(to::amax), *record = c.output<float>(to::record);
  for (int64_t s = 0; s < slots; ++s) {
    float step = *std::max_element(record + s * ranks, record + (s + 1) * ranks), most = 0;
    if (!(step <= FLT_MAX)) step = amax[s];
    for (int64_t h = steps - 1; h > 0; --h) {
      most = std::max(most, amax[h * slots + s]);
      amax[h * slots + s] = h > 1 ? amax[(h - 1) * slots + s] : step;
    }
    amax[s] = std::max(most, step);
  }
  std::memset(record, 0, size_t(slots * ranks) * sizeof(float));
  std::memcpy(c.out[to::lost], c.out[to::counts], size_t(slots) * 2 * sizeof(int64_t));
  std::memset(c.out[to::counts], 0, size_t(slots) * 2 * sizeof(int64_t));
}

}  // namespace

size_t quantize_scratch(const Value& x, int threads) { return float_lines(x.shape.back() * threads); }

void launch_quantizer(const KernelCall& c) {
  if (c.instr.op == &op_quantize)
    launch_quantize(c);
  else
    launch_columns(c);
}

Kernel norm_quantize_kernel() {
  return {"norm_quantize", "cpu.norm_quantize.simd", reject_norm_rows, norm_workspace, nullptr, launch_norm_rows};
}
Kernel norm_quantize_columns_kernel() {
  return {"norm_quantize_columns", "cpu.norm_quantize_columns.simd", reject_norm_columns, norm_workspace, nullptr,
          launch_norm_columns};
}
Kernel quantize_kernel() {
  return {"quantize", "cpu.quantize.rows", reject_quantize, scratch_bytes, nullptr, launch_quantize};
}
Kernel quantize_columns_kernel() {
  return {"quantize_columns", "cpu.quantize_columns.rows", reject_columns, scratch_bytes, nullptr, launch_columns};
}
Kernel linear_fp8_kernel() {
  return {"linear_fp8",  "cpu.linear_fp8.dequantized", reject_product, product_workspace, prepare_product,
          launch_product};
}
Kernel amax_history_kernel() {
  return {"amax_history", "cpu.amax_history", reject_history, nullptr, nullptr, launch_history};
}

}  // namespace crest::cpu
