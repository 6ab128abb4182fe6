// softmax, softmax_grad and causal_mask over rows.
#include "backend/cpu/simd/softmax.h"
#include "backend/cpu/common.h"
#include "ops/attention.h"
#include "ops/index.h"

namespace crest::cpu {
namespace {

std::string reject(const KernelQuery& q) {
  if (std::string why = check_all_float(q); !why.empty()) return why;
  for (size_t i = 1; i < q.instr.in.size(); ++i)
    if (std::string why = check_same(q.in(i), q.in(0)); !why.empty()) return why;
  return check_same(q.out(0), q.in(0));
}

size_t softmax_workspace(const KernelQuery& q) {
  return size_t(q.device.threads) * float_lines(q.in(in::softmax::x).shape.back());
}

SoftmaxRows rows_of(const KernelCall& c, int64_t begin, int64_t end) {
  const Attrs& a = c.instr.attrs;
  return {c.in_value(0).shape.back(), begin, end, float(a.number("scale", 1)), a.integer("causal", 0) != 0};
}

void launch_softmax(const KernelCall& c) {
  int64_t stride = int64_t(float_lines(c.in_value(in::softmax::x).shape.back()) / 4);
  over_rows(c, 8192, [&](int64_t begin, int64_t end, int t) {
    CREST_SIMD_PICK(softmax_functions)
        .forward(c.in[in::softmax::x], c.out[out::softmax::y], c.in_value(in::softmax::x).dtype, rows_of(c, begin, end),
                 static_cast<float*>(c.workspace) + t * stride);
  });
}
void launch_grad(const KernelCall& c) {
  over_rows(c, 8192, [&](int64_t begin, int64_t end, int) {
    CREST_SIMD_PICK(softmax_functions)
        .backward(c.in[in::softmax_grad::dy], c.in[in::softmax_grad::y], c.out[out::softmax_grad::dx],
                  c.in_value(in::softmax_grad::dy).dtype, rows_of(c, begin, end));
  });
}
void launch_mask(const KernelCall& c) {
  const Value& s = c.in_value(in::causal_mask::s);
  const auto* positions = c.has(in::causal_mask::positions) ? c.input<int32_t>(in::causal_mask::positions) : nullptr;
  int64_t window = window_of(c.instr.attrs, s.shape.back());
  over_rows(c, 8192, [&](int64_t begin, int64_t end, int) {
    CREST_SIMD_PICK(softmax_functions)
        .causal_mask(c.in[in::causal_mask::s], c.out[out::causal_mask::y], s.dtype,
                     {s.shape.back(), begin, end, s.shape[1], window, positions});
  });
}

}  // namespace

Kernel softmax_kernel() { return {"softmax", "cpu.softmax.simd", reject, softmax_workspace, nullptr, launch_softmax}; }
Kernel softmax_grad_kernel() {
  return {"softmax_grad", "cpu.softmax_grad.simd", reject, nullptr, nullptr, launch_grad};
}
Kernel causal_mask_kernel() { return {"causal_mask", "cpu.causal_mask.simd", reject, nullptr, nullptr, launch_mask}; }

}  // namespace crest::cpu
