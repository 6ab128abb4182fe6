// linear_fp8, and the end of a step for its scales: amax_history and take_counts. CPUs have no
// 8-bit floats: operands are multiplied as f32, where they and their scales are exact.
#include <cfloat>
#include <cstring>
#include <vector>

#include "backend/cpu/common.h"
#include "backend/cpu/gemm.h"
#include "core/float8.h"
#include "ops/fp8.h"
#include "ops/index.h"
#include "program/op.h"

namespace crest::cpu {
namespace {

constexpr int64_t grain = 1 << 14;

// Workspace of launch_product, in floats: both operands, and the result unless it is f32.
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

void move_counts(void* counts, void* lost, const Value& table) {
  std::memcpy(lost, counts, size_t(table.bytes()));
  std::memset(counts, 0, size_t(table.bytes()));
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
  move_counts(c.out[to::counts], c.out[to::lost], c.out_value(to::counts));
}

void launch_take_counts(const KernelCall& c) {
  namespace to = out::take_counts;
  move_counts(c.out[to::counts], c.out[to::lost], c.out_value(to::counts));
}

std::string reject_take_counts(const KernelQuery&) { return ""; }

}  // namespace

Kernel linear_fp8_kernel() {
  return {"linear_fp8",  "cpu.linear_fp8.dequantized", reject_product, product_workspace, prepare_product,
          launch_product};
}
Kernel amax_history_kernel() {
  return {"amax_history", "cpu.amax_history", reject_history, nullptr, nullptr, launch_history};
}
Kernel take_counts_kernel() {
  return {"take_counts", "cpu.take_counts", reject_take_counts, nullptr, nullptr, launch_take_counts};
}

}  // namespace crest::cpu
