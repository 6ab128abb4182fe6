// linear_int8, embedding_int8. A few rows (decoding) read the weights as they are. For more, the
// weights are converted, without their scales, to what a matrix product takes; scales and bias
// follow in f32.
#include <cstring>

#include "backend/cpu/common.h"
#include "backend/cpu/gemm.h"
#include "backend/cpu/simd/few_rows.h"
#include "ops/index.h"

namespace crest::cpu {
namespace {

namespace at = in::linear_int8;

constexpr int64_t most_rows = 8;  // as of linear.few_rows
constexpr int64_t grain = 1 << 14;

std::string reject_linear(const KernelQuery& q) {
  if (std::string why = check_float(q.in(at::x)); !why.empty()) return why;
  if (q.in(at::scale).dtype != DType::f32) return "takes scales of f32";
  if (q.has(at::b))
    if (std::string why = check_float(q.in(at::b)); !why.empty()) return why;
  if (q.in(at::x).numel() == 0 || q.in(at::w).numel() == 0) return "empty operands";
  return check_float(q.out(0));
}

struct Layer {
  int64_t rows, n, k;
  DType dtype;  // of x and y
};

Layer layer_of(const Program& p, const Instr& i) {
  const Value &x = p.at(i.in[at::x]), &w = p.at(i.in[at::w]);
  return {x.shape.rows(), w.shape[0], w.shape[1], x.dtype};
}
Layer layer_of(const KernelQuery& q) { return layer_of(q.program, q.instr); }

std::string reject_few_rows(const KernelQuery& q) {
  if (std::string why = reject_linear(q); !why.empty()) return why;
  return layer_of(q).rows > most_rows ? "more than 8 rows are faster as a matrix product" : "";
}

size_t few_rows_workspace(const KernelQuery& q) {
  Layer l = layer_of(q);
  return float_lines(l.rows * l.k) + float_lines(l.n);
}

void launch_few_rows(const KernelCall& c) {
  Layer l = layer_of(c.program, c.instr);
  auto* floats = static_cast<float*>(c.workspace);
  FewRowsArgs a{};
  a.rows = l.rows, a.n = l.n, a.k = l.k, a.dtype = l.dtype, a.weights = DType::i8;
  a.x = floats_of(c.in[at::x], l.dtype, l.rows * l.k, floats);
  if (c.has(at::b))
    a.bias = floats_of(c.in[at::b], c.in_value(at::b).dtype, l.n, floats + float_lines(l.rows * l.k) / sizeof(float));
  a.scale = c.input<float>(at::scale), a.w = c.in[at::w], a.y = c.out[0];
  const FewRowsFunctions& f = CREST_SIMD_PICK(few_rows_functions);
  constexpr int64_t outputs = 64;  // every one is summed by one thread
  int64_t items = (l.n + outputs - 1) / outputs;
  int threads = threads_for(c.threads, l.n * l.k, 16384);
#pragma omp parallel for num_threads(threads) schedule(static)
  for (int64_t i = 0; i < items; ++i) f.outputs(a, i * outputs, std::min(l.n, (i + 1) * outputs));
}

GemmShape gemm_of(const KernelQuery& q, DType ab) {
  Layer l = layer_of(q);
  GemmShape g;
  g.m = l.rows, g.n = l.n, g.k = l.k, g.ab = ab;
  g.b_transposed = true;
  g.lda = g.ldb = l.k, g.ldc = l.n;
  g.threads = q.device.threads;
  return g;
}

// bf16 where the product takes it: integers up to 127 are exact in it.
struct Product {
  std::shared_ptr<const Gemm> gemm;
  DType ab;
  std::string refused;
};

Product product_of(const KernelQuery& q) {
  if (layer_of(q).dtype == DType::bf16)
    if (FoundGemm found = find_gemm(gemm_of(q, DType::bf16), q.device); found.gemm)
      return {found.gemm, DType::bf16, ""};
  FoundGemm found = find_gemm(gemm_of(q, DType::f32), q.device);
  return {found.gemm, DType::f32, found.refused};
}

std::string reject(const KernelQuery& q) {
  if (std::string why = reject_linear(q); !why.empty()) return why;
  return product_of(q).refused;
}

// The weights, x where it is converted, the product.
struct Regions {
  size_t w, x, y;
  Regions(const Layer& l, DType ab)
      : w(lines(size_t(l.n * l.k) * size_of(ab))),
        x(ab == l.dtype ? 0 : float_lines(l.rows * l.k)),
        y(float_lines(l.rows * l.n)) {}
};

size_t workspace(const KernelQuery& q) {
  Product p = product_of(q);
  Regions r(layer_of(q), p.ab);
  return r.w + r.x + r.y + float_lines(layer_of(q).n) + p.gemm->workspace();
}

std::shared_ptr<void> prepare(const KernelQuery& q) { return std::make_shared<Product>(product_of(q)); }

void widen(void* to, DType t, const int8_t* from, int64_t n, int threads) {
  threads = threads_for(threads, n, grain);
#pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1)
  for (int p = 0; p < threads; ++p) {
    int64_t begin = part_begin(n, p, threads), end = part_begin(n, p + 1, threads);
    if (t == DType::f32) {
      auto* floats = static_cast<float*>(to);
      for (int64_t i = begin; i < end; ++i) floats[i] = float(from[i]);
    } else {  // exact, so the upper half is the number
      auto* halves = static_cast<uint16_t*>(to);
      for (int64_t i = begin; i < end; ++i) halves[i] = uint16_t(std::bit_cast<uint32_t>(float(from[i])) >> 16);
    }
  }
}

void launch(const KernelCall& c) {
  const Product& p = *static_cast<const Product*>(c.prepared);
  Layer l = layer_of(c.program, c.instr);
  Regions r(l, p.ab);
  auto* w = static_cast<char*>(c.workspace);
  char *x = w + r.w, *y = x + r.x, *bias = y + r.y, *rest = bias + float_lines(l.n);
  widen(w, p.ab, c.input<int8_t>(at::w), l.n * l.k, c.threads);
  const void* a = c.in[at::x];
  if (r.x) a = floats_of(a, l.dtype, l.rows * l.k, reinterpret_cast<float*>(x));
  p.gemm->run(a, w, nullptr, y, rest);
  const auto* scale = c.input<float>(at::scale);
  const float* b =
      c.has(at::b) ? floats_of(c.in[at::b], c.in_value(at::b).dtype, l.n, reinterpret_cast<float*>(bias)) : nullptr;
  auto* sums = reinterpret_cast<float*>(y);
  int threads = threads_for(c.threads, l.rows * l.n, grain);
#pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1)
  for (int t = 0; t < threads; ++t) {
    int64_t begin = part_begin(l.rows, t, threads), end = part_begin(l.rows, t + 1, threads);
    for (int64_t i = begin; i < end; ++i) {
      float* row = sums + i * l.n;
      if (b)
        for (int64_t j = 0; j < l.n; ++j) row[j] = row[j] * scale[j] + b[j];
      else
        for (int64_t j = 0; j < l.n; ++j) row[j] *= scale[j];
    }
    store_floats(c.out[0], l.dtype, begin * l.n, end * l.n, sums, nullptr);
  }
}

std::string reject_embedding(const KernelQuery& q) {
  if (q.in(in::embedding_int8::scale).dtype != DType::f32) return "takes scales of f32";
  return check_float(q.out(0));
}

size_t embedding_workspace(const KernelQuery& q) {
  return float_lines(q.out(0).shape.back()) * size_t(q.device.threads);
}

void launch_embedding(const KernelCall& c) {
  namespace of = in::embedding_int8;
  const Value &table = c.in_value(of::table), &out = c.out_value(0);
  const auto* ids = c.input<int32_t>(of::ids);
  const auto* codes = c.input<int8_t>(of::table);
  const auto* scale = c.input<float>(of::scale);
  int64_t rows = c.in_value(of::ids).numel(), vocab = table.shape[0], cols = table.shape.back();
  int threads = threads_for(c.threads, rows * cols, 1 << 15);
#pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1)
  for (int t = 0; t < threads; ++t) {
    auto* row = reinterpret_cast<float*>(static_cast<char*>(c.workspace) + size_t(t) * float_lines(cols));
    for (int64_t r = part_begin(rows, t, threads); r < part_begin(rows, t + 1, threads); ++r) {
      bool known = ids[r] >= 0 && ids[r] < vocab;
      const int8_t* from = codes + (known ? ids[r] * cols : 0);
      float s = known ? scale[ids[r]] : 0;
      for (int64_t j = 0; j < cols; ++j) row[j] = s * float(from[j]);
      store_floats(c.output<char>(0) + r * cols * int64_t(size_of(out.dtype)), out.dtype, 0, cols, row, nullptr);
    }
  }
}

}  // namespace

Kernel linear_int8_few_rows_kernel() {
  return {"linear_int8", "cpu.linear_int8.few_rows", reject_few_rows, few_rows_workspace, nullptr, launch_few_rows};
}
Kernel linear_int8_kernel() {
  return {"linear_int8", "cpu.linear_int8.dequantized", reject, workspace, prepare, launch};
}
Kernel embedding_int8_kernel() {
  return {"embedding_int8", "cpu.embedding_int8.rows", reject_embedding, embedding_workspace,
          nullptr,          launch_embedding};
}

}  // namespace crest::cpu
