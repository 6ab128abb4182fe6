// norm, add_norm and norm_grad: rows stay in the first-level cache between their passes.
#include <cstring>

#include "backend/cpu/common.h"
#include "backend/cpu/dropout.h"
#include "backend/cpu/simd/norm.h"
#include "ops/index.h"
#include "ops/norm.h"

namespace crest::cpu {
namespace {

const NormFunctions& functions() { return CREST_SIMD_PICK(norm_functions); }

// Positions shared by norm and add_norm.
template <bool Add>
struct Operands {
  static constexpr size_t x = Add ? size_t(in::add_norm::a) : size_t(in::norm::x);
  static constexpr size_t gamma = Add ? size_t(in::add_norm::gamma) : size_t(in::norm::gamma);
  static constexpr size_t beta = Add ? size_t(in::add_norm::beta) : size_t(in::norm::beta);
  static constexpr size_t y = Add ? size_t(out::add_norm::y) : size_t(out::norm::y);
  static constexpr size_t rstd = Add ? size_t(out::add_norm::rstd) : size_t(out::norm::rstd);
  static constexpr size_t mean = Add ? size_t(out::add_norm::mean) : size_t(out::norm::mean);
};

template <bool Add>
std::string reject_norm(const KernelQuery& q) {
  if (std::string why = check_all_float(q); !why.empty()) return why;
  return Add ? check_same(q.in(in::add_norm::b), q.in(in::add_norm::a)) : std::string();
}

template <bool Add>
size_t norm_workspace(const KernelQuery& q) {
  int64_t cols = q.in(Operands<Add>::x).shape.back();
  return float_lines(2 * cols) + size_t(q.device.threads) * float_lines(2 * cols);
}

template <bool Add>
void launch_norm(const KernelCall& c) {
  using Of = Operands<Add>;
  const Value& x = c.in_value(Of::x);
  bool rms = c.instr.attrs.text("kind") == "rms";
  NormArgs a{};
  a.x = c.in[Of::x];
  a.b = Add ? c.in[in::add_norm::b] : nullptr;
  a.s = Add ? c.out[out::add_norm::s] : nullptr;
  a.y = c.out[Of::y];
  a.rstd = c.output<float>(Of::rstd);
  a.mean = rms ? nullptr : c.output<float>(Of::mean);
  a.cols = x.shape.back();
  a.dtype = x.dtype;
  a.eps = float(c.instr.attrs.number("eps"));
  if (Add) a.dropout = dropout_rows(c, in::add_norm::scalars, x);
  float* w = static_cast<float*>(c.workspace);
  a.gamma = factors_of(c, Of::gamma, a.cols, w);
  a.beta = c.has(Of::beta) ? floats_of(c.in[Of::beta], c.in_value(Of::beta).dtype, a.cols, w + a.cols) : nullptr;
  char* scratch = static_cast<char*>(c.workspace) + float_lines(2 * a.cols);
  int64_t rows = x.shape.rows();
  int threads = threads_for(c.threads, rows * a.cols, 8192);
  const NormFunctions& f = functions();
#pragma omp parallel for num_threads(threads) schedule(static)
  for (int t = 0; t < threads; ++t)
    f.forward(a, part_begin(rows, t, threads), part_begin(rows, t + 1, threads),
              reinterpret_cast<float*>(scratch + size_t(t) * float_lines(2 * a.cols)));
}

// Weight gradients are summed over fixed chunks of rows, then over the chunks in order: bitwise
// identical for any number of threads.
int64_t chunks_of(int64_t rows) { return std::clamp<int64_t>(rows / 16, 1, 64); }

std::string reject_grad(const KernelQuery& q) {
  if (q.instr.attrs.integer("bias", 0)) return "makes no bias gradient";
  if (q.instr.attrs.integer("keep", 0)) return "makes no output of the norm";
  if (std::string why = check_all_float(q); !why.empty()) return why;
  if (std::string why = check_same(q.in(in::norm_grad::x), q.in(in::norm_grad::dy)); !why.empty()) return why;
  if (q.has(in::norm_grad::dres))
    if (std::string why = check_same(q.in(in::norm_grad::dres), q.in(in::norm_grad::dy)); !why.empty()) return why;
  return check_same(q.out(out::norm_grad::dx), q.in(in::norm_grad::dy));
}

size_t grad_workspace(const KernelQuery& q) {
  int64_t cols = q.in(in::norm_grad::dy).shape.back(), chunks = chunks_of(q.in(in::norm_grad::dy).shape.rows());
  return float_lines(3 * cols) + size_t(2 * chunks) * float_lines(cols) +
         size_t(q.device.threads) * float_lines(3 * cols);
}

void launch_grad(const KernelCall& c) {
  const Value& dy = c.in_value(in::norm_grad::dy);
  int64_t cols = dy.shape.back(), rows = dy.shape.rows(), chunks = chunks_of(rows);
  bool beta = c.instr.attrs.integer("beta") != 0;
  char* w = static_cast<char*>(c.workspace);
  float* head = reinterpret_cast<float*>(w);  // gamma as floats, sums of dgamma and dbeta
  float* parts = reinterpret_cast<float*>(w + float_lines(3 * cols));
  int64_t stride = int64_t(float_lines(cols) / 4);
  char* scratch = w + float_lines(3 * cols) + size_t(2 * chunks) * float_lines(cols);
  NormGradArgs a{};
  a.dy = c.in[in::norm_grad::dy];
  a.x = c.in[in::norm_grad::x];
  a.gamma = factors_of(c, in::norm_grad::gamma, cols, head);
  a.rstd = c.input<float>(in::norm_grad::rstd);
  a.mean = c.instr.attrs.text("kind") == "rms" ? nullptr : c.input<float>(in::norm_grad::mean);
  a.dres = c.has(in::norm_grad::dres) ? c.in[in::norm_grad::dres] : nullptr;
  a.dx = c.out[out::norm_grad::dx];
  a.dropped = c.instr.attrs.integer("apart", 0) ? c.out[place_of_dropped(c.instr.attrs)] : nullptr;
  a.dropout = dropout_rows(c, in::norm_grad::scalars, dy);
  a.cols = cols;
  a.dtype = dy.dtype;
  const NormFunctions& f = functions();
  int threads = threads_for(c.threads, rows * cols, 8192);
#pragma omp parallel for num_threads(threads) schedule(static)
  for (int t = 0; t < threads; ++t)
    for (int64_t k = part_begin(chunks, t, threads); k < part_begin(chunks, t + 1, threads); ++k) {
      float* dgamma = parts + 2 * k * stride;
      float* dbeta = beta ? dgamma + stride : nullptr;
      std::memset(dgamma, 0, size_t(2 * stride) * 4);
      f.backward(a, part_begin(rows, k, chunks), part_begin(rows, k + 1, chunks), dgamma, dbeta,
                 reinterpret_cast<float*>(scratch + size_t(t) * float_lines(3 * cols)));
    }
  threads = threads_for(c.threads, cols * chunks, 16384);
#pragma omp parallel for num_threads(threads) schedule(static)
  for (int t = 0; t < threads; ++t) {
    int64_t begin = part_begin(cols, t, threads), end = part_begin(cols, t + 1, threads);
    for (int i = 0; i < (beta ? 2 : 1); ++i) {
      float* sums = head + (i + 1) * cols;
      f.combine(sums, parts + i * stride, chunks, 2 * stride, begin, end);
      size_t acc = i ? in::norm_grad::acc_beta : in::norm_grad::acc_gamma;
      size_t total = i ? out::norm_grad::dbeta : out::norm_grad::dgamma;
      store_floats(c.out[total], c.out_value(total).dtype, begin, end, sums, c.has(acc) ? c.in[acc] : nullptr);
    }
  }
}

}  // namespace

Kernel norm_kernel() {
  return {"norm", "cpu.norm.simd", reject_norm<false>, norm_workspace<false>, nullptr, launch_norm<false>};
}
Kernel add_norm_kernel() {
  return {"add_norm", "cpu.add_norm.simd", reject_norm<true>, norm_workspace<true>, nullptr, launch_norm<true>};
}
Kernel norm_grad_kernel() {
  return {"norm_grad", "cpu.norm_grad.simd", reject_grad, grad_workspace, nullptr, launch_grad};
}

}  // namespace crest::cpu
