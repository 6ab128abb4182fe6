// cross_entropy, cross_entropy_grad, cross_entropy_fused: a row of logits comes from memory once.
#include "backend/cpu/cross_entropy.h"
#include "backend/cpu/common.h"
#include "backend/cpu/simd/cross_entropy.h"
#include "core/scalars.h"

namespace crest::cpu {
namespace {

std::string reject(const KernelQuery& q) { return check_float(q.in(0)); }

std::string reject_grad(const KernelQuery& q) {
  if (std::string why = check_float(q.in(0)); !why.empty()) return why;
  return check_same(q.out(q.instr.out.size() - 1), q.in(0));
}

constexpr int64_t grain = 1 << 14;

size_t fused_workspace(const KernelQuery& q) {
  return size_t(q.device.threads) * float_lines(cross_entropy_scratch(q.instr.attrs.integer("vocab")));
}

CrossEntropyArgs arguments(const KernelCall& c) {
  const Value& logits = c.in_value(0);
  CrossEntropyArgs a{};
  a.logits = c.in[0];
  a.targets = c.input<int32_t>(1);
  a.cols = logits.shape.back();
  a.vocab = c.instr.attrs.integer("vocab");
  a.dtype = logits.dtype;
  return a;
}

float factor(const KernelCall& c, const Scalars& s) {
  return float(c.instr.attrs.number("scale") * double(s.loss_scale) * double(s.loss_weight));
}

void launch(const KernelCall& c) {
  CrossEntropyArgs a = arguments(c);
  a.loss = c.output<float>(0), a.lse = c.output<float>(1);
  a.weight = c.has(2) ? c.input<Scalars>(2)->loss_weight : 1.0f;
  auto f = CREST_SIMD_PICK(cross_entropy_functions).forward;
  over_rows(c, grain, [&](int64_t begin, int64_t end, int) { f(a, begin, end); });
}

void launch_grad(const KernelCall& c) {
  CrossEntropyArgs a = arguments(c);
  a.lse = static_cast<float*>(c.in[2]);
  a.dlogits = c.out[0];
  a.factor = factor(c, *c.input<Scalars>(3));
  auto f = CREST_SIMD_PICK(cross_entropy_functions).backward;
  over_rows(c, grain, [&](int64_t begin, int64_t end, int) { f(a, begin, end); });
}

void launch_fused(const KernelCall& c) {
  CrossEntropyArgs a = arguments(c);
  a.loss = c.output<float>(0), a.dlogits = c.out[1];
  a.factor = factor(c, *c.input<Scalars>(2));
  a.weight = c.input<Scalars>(2)->loss_weight;
  auto f = CREST_SIMD_PICK(cross_entropy_functions).fused;
  auto* scratch = static_cast<float*>(c.workspace);
  int64_t stride = int64_t(float_lines(cross_entropy_scratch(a.vocab)) / 4);
  over_rows(c, grain, [&](int64_t begin, int64_t end, int t) { f(a, begin, end, scratch + t * stride); });
}

}  // namespace

Kernel cross_entropy_kernel() { return {"cross_entropy", "cpu.cross_entropy.simd", reject, nullptr, nullptr, launch}; }
Kernel cross_entropy_grad_kernel() {
  return {"cross_entropy_grad", "cpu.cross_entropy_grad.simd", reject_grad, nullptr, nullptr, launch_grad};
}
Kernel cross_entropy_fused_kernel() {
  return {"cross_entropy_fused", "cpu.cross_entropy_fused.simd", reject_grad, fused_workspace, nullptr, launch_fused};
}

}  // namespace crest::cpu
