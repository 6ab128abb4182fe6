// The element-wise optimizers and finish_step.
#include <cmath>

#include "backend/cpu/common.h"
#include "backend/cpu/optimizer.h"
#include "backend/cpu/simd/optimizer.h"
#include "core/scalars.h"
#include "core/step_factor.h"
#include "core/stochastic_rounding.h"
#include "ops/update.h"

namespace crest::cpu {
namespace {

// Splits n elements among threads at multiples of `unit`.
template <class F>
void split(const KernelCall& c, int64_t n, int64_t unit, F f) {
  int64_t units = (n + unit - 1) / unit;
  int threads = threads_for(c.threads, n, 1 << 14);
#pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1)
  for (int part = 0; part < threads; ++part)
    f(part_begin(units, part, threads) * unit, std::min(n, part_begin(units, part + 1, threads) * unit));
}

UpdateStep step_of(const KernelCall& c) {
  auto* scalars = c.input<Scalars>(0);
  const Attrs& attrs = c.instr.attrs;
  double beta1 = attrs.number("beta1", attrs.number("momentum", 0.0)), beta2 = attrs.number("beta2", 0.0);
  UpdateStep s{};
  s.gradient_factor = scalars->grad_factor;
  s.beta1 = float(beta1), s.beta2 = float(beta2);
  s.one_minus_beta1 = float(1 - beta1), s.one_minus_beta2 = float(1 - beta2);
  s.correction1 = float(1 / bias_correction(std::log(beta1), scalars->adam_step));
  s.correction2 = float(1 / bias_correction(std::log(beta2), scalars->adam_step));
  s.eps = float(attrs.number("eps", 0.0)), s.lr = scalars->lr;
  s.decay = float(double(scalars->lr) * attrs.number("weight_decay"));
  return s;
}

// Inputs scalars, p, states.., g, [w], [c] (ops/update.h).
template <UpdateRule rule, size_t states>
void launch(const KernelCall& c) {
  auto* scalars = c.input<Scalars>(0);
  if (scalars->found_inf) return;
  size_t g = gradient_input(states), w = copy_input(states), k = compensation_input(states);
  UpdateArgs a{};
  a.rule = rule;
  a.step = step_of(c);
  a.p = c.out[0], a.dtype = c.in_value(1).dtype, a.states_dtype = c.in_value(2).dtype;
  for (size_t i = 0; i < states; ++i) a.states[i] = c.out[1 + i];
  a.gradient = c.in[g], a.gradient_dtype = c.in_value(g).dtype;
  if (c.has(w)) a.copy = c.out[1 + states], a.copy_dtype = c.in_value(w).dtype;
  if (c.has(k)) a.compensation = c.output<bfloat16>(1 + states);
  a.rounding = UpdateRounding(rounding_of(c.instr.attrs));
  a.seed = scalars->seed, a.first = c.in_value(1).layout.offset;
  a.stream = update_stream(scalars->adam_step, c.instr.attrs.integer("rng_id", 0));
  auto f = CREST_SIMD_PICK(optimizer_functions).update;
  split(c, c.in_value(1).numel(), 64, [&](int64_t begin, int64_t end) { f(a, begin, end); });
}

// Inputs scalars, master, m, m_max, v, v_max, g, [w].
void launch_8bit(const KernelCall& c) {
  auto* scalars = c.input<Scalars>(0);
  if (scalars->found_inf) return;
  QuantizedArgs a{};
  a.update.step = step_of(c);
  a.update.p = c.out[0], a.update.dtype = c.in_value(1).dtype;
  a.update.gradient = c.in[6], a.update.gradient_dtype = c.in_value(6).dtype;
  if (c.has(7)) a.update.copy = c.out[5], a.update.copy_dtype = c.in_value(7).dtype;
  a.m = c.output<uint8_t>(1), a.m_max = c.output<float>(2);
  a.v = c.output<uint8_t>(3), a.v_max = c.output<float>(4);
  a.block = c.instr.attrs.integer("block");
  auto f = CREST_SIMD_PICK(quantized_functions).adamw;
  split(c, c.in_value(1).numel(), a.block, [&](int64_t begin, int64_t end) { f(a, begin, end); });
}

std::string reject_8bit(const KernelQuery& q) {
  for (size_t i : {6, 7})
    if (q.has(i))
      if (std::string why = check_float(q.in(i)); !why.empty()) return why;
  if (q.in(3).dtype != DType::f32) return q.in(3).name + ": takes f32";
  if (q.instr.attrs.integer("block") > largest_block) return "takes blocks of up to 4096 elements";
  return {};
}

// Everything is floats but the scalars and halves of masters.
std::string reject(const KernelQuery& q) {
  for (size_t i = 1; i < q.instr.in.size(); ++i)
    if (q.has(i) && q.in(i).dtype != DType::u16)
      if (std::string why = check_float(q.in(i)); !why.empty()) return why;
  return {};
}

void launch_axpby(const KernelCall& c) {
  auto* scalars = c.input<Scalars>(0);
  if (scalars->found_inf) return;
  const Attrs& attrs = c.instr.attrs;
  double log_beta = std::log(attrs.number("beta", 0.0));
  auto factor = [&](const char* by) {
    return attrs.has(by) ? step_factor(*parse_step_factor(attrs.word(by)), log_beta, *scalars) : 1.0;
  };
  AxpbyArgs a{};
  a.a = float(attrs.number("a") * factor("a_by") - double(scalars->lr) * attrs.number("decay", 0.0));
  a.b = float(attrs.number("b", 0.0) * factor("b_by"));
  a.c = float(attrs.number("c", 0.0));
  a.divide = attrs.integer("divide", 0) != 0;
  a.x = c.out[0], a.x_dtype = c.in_value(1).dtype;
  if (c.has(2)) a.y = c.in[2], a.y_dtype = c.in_value(2).dtype;
  if (c.has(3)) a.z = c.in[3], a.z_dtype = c.in_value(3).dtype;
  auto f = CREST_SIMD_PICK(optimizer_functions).axpby;
  split(c, c.in_value(1).numel(), 64, [&](int64_t begin, int64_t end) { f(a, begin, end); });
}

void launch_sqrt(const KernelCall& c) {
  auto f = CREST_SIMD_PICK(optimizer_functions).sqrt;
  split(c, c.in_value(0).numel(), 64,
        [&](int64_t begin, int64_t end) { f(c.in[0], c.out[0], c.in_value(0).dtype, begin, end); });
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

Kernel adamw_kernel() { return {"adamw", "cpu.adamw.simd", reject, nullptr, nullptr, launch<UpdateRule::adamw, 2>}; }
Kernel sgd_kernel() { return {"sgd", "cpu.sgd.simd", reject, nullptr, nullptr, launch<UpdateRule::sgd, 1>}; }
Kernel lion_kernel() { return {"lion", "cpu.lion.simd", reject, nullptr, nullptr, launch<UpdateRule::lion, 1>}; }
Kernel adamw_8bit_kernel() { return {"adamw_8bit", "cpu.adamw_8bit.simd", reject_8bit, nullptr, nullptr, launch_8bit}; }
Kernel axpby_kernel() { return {"axpby", "cpu.axpby.simd", reject, nullptr, nullptr, launch_axpby}; }
Kernel sqrt_kernel() { return {"sqrt", "cpu.sqrt.simd", check_all_float, nullptr, nullptr, launch_sqrt}; }
Kernel finish_step_kernel() { return {"finish_step", "cpu.finish_step.host", accept, nullptr, nullptr, launch_finish}; }

}  // namespace crest::cpu
