// qk_norm and its gradient: the rows of a norm are the groups of a token's queries, then of its
// keys.
#include <cstring>

#include "backend/cpu/common.h"
#include "backend/cpu/simd/norm.h"
#include "ops/index.h"

namespace crest::cpu {
namespace {

// Queries (0) and keys (1) of a token.
struct QkShape {
  int64_t tokens, width, values;  // elements of a row, and of its values
  int64_t first[2], cols[2], groups[2];

  QkShape(const Value& qkv, const Attrs& a) {
    const int64_t heads[] = {a.integer("heads"), a.integer("kv_heads")};
    width = qkv.shape.back(), tokens = qkv.numel() / width;
    const int64_t dim = width / (heads[0] + 2 * heads[1]);
    const bool by_head = a.text("per") == "head";
    for (int i : {0, 1}) {
      first[i] = i ? heads[0] * dim : 0;
      cols[i] = by_head ? dim : heads[i] * dim, groups[i] = by_head ? heads[i] : 1;
    }
    values = heads[1] * dim;
  }
  int64_t most() const { return std::max(cols[0], cols[1]); }
};

std::string reject(const KernelQuery& q) { return check_all_float(q); }

size_t workspace(const KernelQuery& q) {
  const QkShape s(q.in(in::qk_norm::qkv), q.instr.attrs);
  return 2 * float_lines(s.most()) + size_t(q.device.threads) * float_lines(2 * s.most());
}

void launch_qk_norm(const KernelCall& c) {
  const Value& x = c.in_value(in::qk_norm::qkv);
  const QkShape s(x, c.instr.attrs);
  const auto size = int64_t(size_of(x.dtype));
  char* w = static_cast<char*>(c.workspace);
  const float* gamma[2];
  for (int i : {0, 1})
    gamma[i] = factors_of(c, in::qk_norm::q_weight + size_t(i), s.cols[i],
                          reinterpret_cast<float*>(w + size_t(i) * float_lines(s.most())));
  w += 2 * float_lines(s.most());
  const int threads = threads_for(c.threads, x.numel(), 8192);
  const NormFunctions& f = CREST_SIMD_PICK(norm_functions);
#pragma omp parallel for num_threads(threads) schedule(static)
  for (int t = 0; t < threads; ++t)
    for (int64_t r = part_begin(s.tokens, t, threads); r < part_begin(s.tokens, t + 1, threads); ++r) {
      const char* from = c.input<char>(in::qk_norm::qkv) + r * s.width * size;
      char* to = c.output<char>(out::qk_norm::y) + r * s.width * size;
      for (int i : {0, 1}) {
        NormArgs a{};
        a.x = from + s.first[i] * size, a.y = to + s.first[i] * size;
        a.gamma = gamma[i], a.cols = s.cols[i], a.dtype = x.dtype, a.eps = float(c.instr.attrs.number("eps"));
        a.rstd = c.output<float>(out::qk_norm::q_rstd + size_t(i)) + r * s.groups[i];
        f.forward(a, 0, s.groups[i], reinterpret_cast<float*>(w + size_t(t) * float_lines(2 * s.most())));
      }
      const int64_t values = (s.width - s.values) * size;
      if (from != to) std::memcpy(to + values, from + values, size_t(s.values * size));
    }
}

// As norm_grad sums: over fixed chunks of tokens, then over the chunks in order.
int64_t chunks_of_tokens(int64_t tokens) { return std::clamp<int64_t>(tokens / 16, 1, 64); }

size_t grad_workspace(const KernelQuery& q) {
  const QkShape s(q.in(in::qk_norm_grad::qkv), q.instr.attrs);
  return 3 * float_lines(s.most()) + size_t(2 * chunks_of_tokens(s.tokens)) * float_lines(s.most()) +
         size_t(q.device.threads) * float_lines(3 * s.most());
}

void launch_qk_norm_grad(const KernelCall& c) {
  namespace at = in::qk_norm_grad;
  const Value& dy = c.in_value(at::dy);
  const QkShape s(c.in_value(at::qkv), c.instr.attrs);
  const auto size = int64_t(size_of(dy.dtype)), chunks = chunks_of_tokens(s.tokens);
  const size_t line = float_lines(s.most());
  char* w = static_cast<char*>(c.workspace);
  auto floats = [&](size_t lines) { return reinterpret_cast<float*>(w + lines * line); };
  const float* gamma[] = {factors_of(c, at::q_weight, s.cols[0], floats(0)),
                          factors_of(c, at::k_weight, s.cols[1], floats(1))};
  float *sums = floats(2), *parts = floats(3);
  const auto stride = int64_t(line / sizeof(float));
  char* scratch = w + (3 + 2 * size_t(chunks)) * line;
  int threads = threads_for(c.threads, dy.numel(), 8192);
  const NormFunctions& f = CREST_SIMD_PICK(norm_functions);
#pragma omp parallel for num_threads(threads) schedule(static)
  for (int t = 0; t < threads; ++t)
    for (int64_t k = part_begin(chunks, t, threads); k < part_begin(chunks, t + 1, threads); ++k) {
      std::memset(parts + 2 * k * stride, 0, 2 * line);
      for (int64_t r = part_begin(s.tokens, k, chunks); r < part_begin(s.tokens, k + 1, chunks); ++r) {
        const int64_t row = r * s.width * size;
        const char* from = c.input<char>(at::dy) + row;
        char* to = c.output<char>(out::qk_norm_grad::dqkv) + row;
        for (int i : {0, 1}) {
          NormGradArgs a{};
          a.dy = from + s.first[i] * size, a.x = c.input<char>(at::qkv) + row + s.first[i] * size;
          a.dx = to + s.first[i] * size, a.gamma = gamma[i], a.cols = s.cols[i], a.dtype = dy.dtype;
          a.rstd = c.input<float>(at::q_rstd + size_t(i)) + r * s.groups[i];
          f.backward(a, 0, s.groups[i], parts + (2 * k + i) * stride, nullptr,
                     reinterpret_cast<float*>(scratch + size_t(t) * float_lines(3 * s.most())));
        }
        const int64_t values = (s.width - s.values) * size;
        if (from != to) std::memcpy(to + values, from + values, size_t(s.values * size));
      }
    }
  if (!c.has(at::q_weight)) return;
  for (int i : {0, 1}) {
    const size_t acc = at::acc_q + size_t(i), total = out::qk_norm_grad::dq + size_t(i);
    f.combine(sums, parts + i * stride, chunks, 2 * stride, 0, s.cols[i]);
    store_floats(c.out[total], c.out_value(total).dtype, 0, s.cols[i], sums, c.has(acc) ? c.in[acc] : nullptr);
  }
}

}  // namespace

Kernel qk_norm_kernel() { return {"qk_norm", "cpu.qk_norm.simd", reject, workspace, nullptr, launch_qk_norm}; }
Kernel qk_norm_grad_kernel() {
  return {"qk_norm_grad", "cpu.qk_norm_grad.simd", reject, grad_workspace, nullptr, launch_qk_norm_grad};
}

}  // namespace crest::cpu
