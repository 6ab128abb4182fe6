// norm, add_norm and norm_grad: rows stay in the first-level cache between their passes.
#include <cstring>

#include "backend/cpu/common.h"
#include "backend/cpu/simd/norm.h"

namespace crest::cpu {
namespace {

const NormFunctions& functions() { return CREST_SIMD_PICK(norm_functions); }

// Position of gamma: after x (norm) or after a, b (add_norm).
std::string reject_norm(const KernelQuery& q, size_t gamma) {
  if (std::string why = check_all_float(q); !why.empty()) return why;
  for (size_t i = 1; i < gamma; ++i)
    if (std::string why = check_same(q.in(i), q.in(0)); !why.empty()) return why;
  return {};
}

size_t norm_workspace(const KernelQuery& q) {
  int64_t cols = q.in(0).shape.back();
  return float_lines(2 * cols) + size_t(q.device.threads) * float_lines(2 * cols);
}

void launch_norm(const KernelCall& c, size_t gamma) {
  const Value& x = c.in_value(0);
  bool rms = c.instr.attrs.word("kind") == "rms";
  size_t out = gamma - 1;  // position of y: after s of add_norm
  NormArgs a{};
  a.x = c.in[0];
  a.b = gamma == 2 ? c.in[1] : nullptr;
  a.s = gamma == 2 ? c.out[0] : nullptr;
  a.y = c.out[out];
  a.rstd = c.output<float>(out + 1);
  a.mean = rms ? nullptr : c.output<float>(out + 2);
  a.cols = x.shape.back();
  a.dtype = x.dtype;
  a.eps = float(c.instr.attrs.number("eps"));
  float* w = static_cast<float*>(c.workspace);
  a.gamma = floats_of(c.in[gamma], c.in_value(gamma).dtype, a.cols, w);
  a.beta = c.has(gamma + 1) ? floats_of(c.in[gamma + 1], c.in_value(gamma + 1).dtype, a.cols, w + a.cols) : nullptr;
  char* scratch = static_cast<char*>(c.workspace) + float_lines(2 * a.cols);
  int64_t rows = x.shape.rows();
  int threads = threads_for(c.threads, rows * a.cols, 8192);
  const NormFunctions& f = functions();
#pragma omp parallel for num_threads(threads) schedule(static)
  for (int t = 0; t < threads; ++t)
    f.forward(a, part_begin(rows, t, threads), part_begin(rows, t + 1, threads),
              reinterpret_cast<float*>(scratch + size_t(t) * float_lines(2 * a.cols)));
}

// Weight gradients are summed over fixed chunks of rows, then over the chunks in order: the same bits for any number
// of threads.
int64_t chunks_of(int64_t rows) { return std::clamp<int64_t>(rows / 16, 1, 64); }

std::string reject_grad(const KernelQuery& q) {
  if (std::string why = check_all_float(q); !why.empty()) return why;
  if (std::string why = check_same(q.in(1), q.in(0)); !why.empty()) return why;
  if (q.has(5))
    if (std::string why = check_same(q.in(5), q.in(0)); !why.empty()) return why;
  return check_same(q.out(0), q.in(0));
}

size_t grad_workspace(const KernelQuery& q) {
  int64_t cols = q.in(0).shape.back(), chunks = chunks_of(q.in(0).shape.rows());
  return float_lines(3 * cols) + size_t(2 * chunks) * float_lines(cols) +
         size_t(q.device.threads) * float_lines(3 * cols);
}

void launch_grad(const KernelCall& c) {
  const Value& dy = c.in_value(0);
  int64_t cols = dy.shape.back(), rows = dy.shape.rows(), chunks = chunks_of(rows);
  bool beta = c.instr.attrs.integer("beta") != 0;
  char* w = static_cast<char*>(c.workspace);
  float* head = reinterpret_cast<float*>(w);  // gamma as floats, sums of dgamma and dbeta
  float* parts = reinterpret_cast<float*>(w + float_lines(3 * cols));
  int64_t stride = int64_t(float_lines(cols) / 4);
  char* scratch = w + float_lines(3 * cols) + size_t(2 * chunks) * float_lines(cols);
  NormGradArgs a{};
  a.dy = c.in[0];
  a.x = c.in[1];
  a.gamma = floats_of(c.in[2], c.in_value(2).dtype, cols, head);
  a.rstd = c.input<float>(3);
  a.mean = c.instr.attrs.word("kind") == "rms" ? nullptr : c.input<float>(4);
  a.dres = c.has(5) ? c.in[5] : nullptr;
  a.dx = c.out[0];
  a.cols = cols;
  a.dtype = dy.dtype;
  const NormFunctions& f = functions();
  int threads = threads_for(std::min<int64_t>(c.threads, chunks), rows * cols, 8192);
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
      size_t acc = size_t(6 + i);
      store_floats(c.out[1 + i], c.out_value(size_t(1 + i)).dtype, begin, end, sums, c.has(acc) ? c.in[acc] : nullptr);
    }
  }
}

}  // namespace

Kernel norm_kernel() {
  return {"norm",         "cpu.norm.simd", [](const KernelQuery& q) { return reject_norm(q, 1); },
          norm_workspace, nullptr,         [](const KernelCall& c) { launch_norm(c, 1); }};
}
Kernel add_norm_kernel() {
  return {"add_norm",
          "cpu.add_norm.simd",
          [](const KernelQuery& q) { return reject_norm(q, 2); },
          norm_workspace,
          nullptr,
          [](const KernelCall& c) { launch_norm(c, 2); }};
}
Kernel norm_grad_kernel() {
  return {"norm_grad", "cpu.norm_grad.simd", reject_grad, grad_workspace, nullptr, launch_grad};
}

}  // namespace crest::cpu
