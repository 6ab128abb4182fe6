// loss_stats, cross_entropy, cross_entropy_grad, cross_entropy_fused: a row of logits comes from
// memory once.
#include "backend/cpu/simd/cross_entropy.h"
#include "backend/cpu/common.h"
#include "core/scalars.h"
#include "ops/index.h"

namespace crest::cpu {
namespace {

std::string reject(const KernelQuery& q) { return check_float_rows(q.in(in::cross_entropy::logits)); }

std::string reject_grad(const KernelQuery& q) {
  if (std::string why = check_float_rows(q.in(in::cross_entropy_grad::logits)); !why.empty()) return why;
  return check_same_rows(q.out(q.instr.out.size() - 1), q.in(in::cross_entropy_grad::logits));
}

constexpr int64_t grain = 1 << 14;

size_t fused_workspace(const KernelQuery& q) {
  return size_t(q.device.threads) * float_lines(cross_entropy_scratch(q.instr.attrs.integer("vocab")));
}

CrossEntropyArgs arguments(const KernelCall& c) {
  const Value& logits = c.in_value(in::cross_entropy::logits);
  CrossEntropyArgs a{};
  a.logits = c.in[in::cross_entropy::logits];
  a.targets = c.input<int32_t>(in::cross_entropy::targets);
  a.cols = logits.shape.back();
  a.pitch = logits.pitch();
  a.rows = logits.shape.rows();
  a.all = c.instr.attrs.integer("vocab"), a.first = c.part_begin(a.cols);
  a.vocab = std::clamp<int64_t>(a.all - a.first, 0, a.cols);
  a.dtype = logits.dtype;
  a.cap = float(c.instr.attrs.number("cap", 0));
  return a;
}

float factor(const KernelCall& c, const Scalars& s) {
  return float(c.instr.attrs.number("scale") * double(s.loss_scale) * double(s.loss_weight));
}

void launch_stats(const KernelCall& c) {
  CrossEntropyArgs a = arguments(c);
  a.stats = c.output<float>(out::loss_stats::stats);
  auto f = CREST_SIMD_PICK(cross_entropy_functions).stats;
  over_rows(c, grain, [&](int64_t begin, int64_t end, int) { f(a, begin, end); });
}

void launch(const KernelCall& c) {
  CrossEntropyArgs a = arguments(c);
  a.loss = c.output<float>(out::cross_entropy::loss), a.lse = c.output<float>(out::cross_entropy::lse);
  a.weight = c.has(in::cross_entropy::scalars) ? c.input<Scalars>(in::cross_entropy::scalars)->loss_weight : 1.0f;
  auto f = CREST_SIMD_PICK(cross_entropy_functions).forward;
  if (c.has(in::cross_entropy::stats)) {
    a.stats = static_cast<float*>(c.in[in::cross_entropy::stats]);
    a.ranks = c.in_value(in::cross_entropy::stats).shape[0];
    f = CREST_SIMD_PICK(cross_entropy_functions).combine;
  }
  over_rows(c, grain, [&](int64_t begin, int64_t end, int) { f(a, begin, end); });
}

void launch_grad(const KernelCall& c) {
  CrossEntropyArgs a = arguments(c);
  a.lse = static_cast<float*>(c.in[in::cross_entropy_grad::lse]);
  a.dlogits = c.out[out::cross_entropy_grad::dlogits];
  a.d_pitch = c.out_value(out::cross_entropy_grad::dlogits).pitch();
  a.factor = factor(c, *c.input<Scalars>(in::cross_entropy_grad::scalars));
  auto f = CREST_SIMD_PICK(cross_entropy_functions).backward;
  over_rows(c, grain, [&](int64_t begin, int64_t end, int) { f(a, begin, end); });
}

void launch_fused(const KernelCall& c) {
  CrossEntropyArgs a = arguments(c);
  a.loss = c.output<float>(out::cross_entropy_fused::loss), a.dlogits = c.out[out::cross_entropy_fused::dlogits];
  a.d_pitch = c.out_value(out::cross_entropy_fused::dlogits).pitch();
  a.factor = factor(c, *c.input<Scalars>(in::cross_entropy_fused::scalars));
  a.weight = c.input<Scalars>(in::cross_entropy_fused::scalars)->loss_weight;
  auto f = CREST_SIMD_PICK(cross_entropy_functions).fused;
  auto* scratch = static_cast<float*>(c.workspace);
  int64_t stride = int64_t(float_lines(cross_entropy_scratch(a.vocab)) / 4);
  over_rows(c, grain, [&](int64_t begin, int64_t end, int t) { f(a, begin, end, scratch + t * stride); });
}

}  // namespace

Kernel loss_stats_kernel() { return {"loss_stats", "cpu.loss_stats.simd", reject, nullptr, nullptr, launch_stats}; }
Kernel cross_entropy_kernel() { return {"cross_entropy", "cpu.cross_entropy.simd", reject, nullptr, nullptr, launch}; }
Kernel cross_entropy_grad_kernel() {
  return {"cross_entropy_grad", "cpu.cross_entropy_grad.simd", reject_grad, nullptr, nullptr, launch_grad};
}
Kernel cross_entropy_fused_kernel() {
  return {"cross_entropy_fused", "cpu.cross_entropy_fused.simd", reject_grad, fused_workspace, nullptr, launch_fused};
}

}  // namespace crest::cpu
