// adamw and finish_step.
#include <cmath>

#include "backend/cpu/common.h"
#include "backend/cpu/optimizer.h"
#include "backend/cpu/simd/optimizer.h"
#include "core/scalars.h"

namespace crest::cpu {
namespace {

// Inputs scalars, master, m, v, g, [w]; outputs master, m, v, [w], all in place.
std::string reject(const KernelQuery& q) {
  for (size_t i = 1; i < 4; ++i)
    if (q.in(i).dtype != DType::f32 || !q.in(i).contiguous()) return q.in(i).name + ": takes contiguous f32";
  for (size_t i = 4; i < 6; ++i)
    if (q.has(i))
      if (std::string why = check_float(q.in(i)); !why.empty()) return why;
  return {};
}

void launch(const KernelCall& c) {
  auto* scalars = c.input<Scalars>(0);
  if (scalars->found_inf) return;
  const Attrs& attrs = c.instr.attrs;
  double beta1 = attrs.number("beta1"), beta2 = attrs.number("beta2"), t = double(scalars->adam_step + 1);
  AdamwArgs a{};
  a.master = c.output<float>(0), a.m = c.output<float>(1), a.v = c.output<float>(2);
  a.gradient = c.in[4], a.gradient_dtype = c.in_value(4).dtype;
  if (c.has(5)) a.weight = c.out[3], a.weight_dtype = c.in_value(5).dtype;
  a.gradient_factor = scalars->grad_factor;
  a.beta1 = float(beta1), a.beta2 = float(beta2);
  a.one_minus_beta1 = float(1 - beta1), a.one_minus_beta2 = float(1 - beta2);
  a.correction1 = float(1 / (1 - std::pow(beta1, t))), a.correction2 = float(1 / (1 - std::pow(beta2, t)));
  a.eps = float(attrs.number("eps")), a.lr = scalars->lr;
  a.decay = float(double(scalars->lr) * attrs.number("weight_decay"));
  int64_t n = c.in_value(1).numel(), lines_of = (n + 63) / 64;
  int threads = threads_for(c.threads, n, 1 << 14);
  auto f = CREST_SIMD_PICK(optimizer_functions).adamw;
#pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1)
  for (int part = 0; part < threads; ++part)
    f(a, part_begin(lines_of, part, threads) * 64, std::min(n, part_begin(lines_of, part + 1, threads) * 64));
}

std::string accept(const KernelQuery&) { return {}; }

void launch_finish(const KernelCall& c) {
  auto& s = *c.output<Scalars>(0);
  const Attrs& attrs = c.instr.attrs;
  bool dynamic = attrs.integer("dynamic") != 0;
  if (s.found_inf) {
    ++s.skipped;
    s.good_steps = 0;
    if (dynamic) s.loss_scale = std::max(s.loss_scale / 2, float(attrs.number("min_scale")));
    return;
  }
  ++s.adam_step;
  ++s.good_steps;
  if (dynamic && s.good_steps == attrs.integer("growth_interval")) {
    s.loss_scale = std::min(2 * s.loss_scale, float(attrs.number("max_scale")));
    s.good_steps = 0;
  }
}

}  // namespace

Kernel adamw_kernel() { return {"adamw", "cpu.adamw.simd", reject, nullptr, nullptr, launch}; }
Kernel finish_step_kernel() { return {"finish_step", "cpu.finish_step.host", accept, nullptr, nullptr, launch_finish}; }

}  // namespace crest::cpu
