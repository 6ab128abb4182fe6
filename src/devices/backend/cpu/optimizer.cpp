// The element-wise optimizers and finish_step.
#include <cmath>

#include "backend/cpu/common.h"
#include "backend/cpu/simd/optimizer.h"
#include "core/scalars.h"
#include "core/step_factor.h"
#include "core/stochastic_rounding.h"
#include "ops/index.h"
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

// Inputs scalars, p, states.., g, [w], [c] (ops/update.h).
template <UpdateRule rule, size_t states>
void launch(const KernelCall& c) {
  auto* scalars = c.input<Scalars>(scalars_input);
  if (scalars->found_inf) return;
  size_t g = gradient_input(states), w = copy_input(states), k = compensation_input(states);
  UpdateArgs a{};
  a.rule = rule;
  a.step = UpdateRates(c.instr.attrs).step<float>(*scalars);
  a.p = c.out[parameter_output], a.dtype = c.in_value(parameter_input).dtype;
  for (size_t i = 0; i < states; ++i) a.states[i] = c.out[state_output + i];
  a.states_dtype = c.in_value(state_input).dtype;
  a.gradient = c.in[g], a.gradient_dtype = c.in_value(g).dtype;
  if (c.has(w)) a.copy = c.out[copy_output(states)], a.copy_dtype = c.in_value(w).dtype;
  if (c.has(k)) a.compensation = c.output<bfloat16>(compensation_output(states));
  a.rounding = UpdateRounding(rounding_of(c.instr.attrs));
  a.seed = scalars->seed, a.first = c.in_value(parameter_input).layout.offset;
  if (int64_t share = c.instr.attrs.integer("share", 0)) a.first += c.index() * share;
  a.stream = update_stream(scalars->adam_step, c.instr.attrs.integer("rng_id", 0));
  auto f = CREST_SIMD_PICK(optimizer_functions).update;
  split(c, c.in_value(parameter_input).numel(), 64, [&](int64_t begin, int64_t end) { f(a, begin, end); });
}

void launch_8bit(const KernelCall& c) {
  auto* scalars = c.input<Scalars>(in::adamw_8bit::scalars);
  if (scalars->found_inf) return;
  QuantizedArgs a{};
  a.update.step = UpdateRates(c.instr.attrs).step<float>(*scalars);
  a.update.p = c.out[out::adamw_8bit::master], a.update.dtype = c.in_value(in::adamw_8bit::master).dtype;
  a.update.gradient = c.in[in::adamw_8bit::g], a.update.gradient_dtype = c.in_value(in::adamw_8bit::g).dtype;
  if (c.has(in::adamw_8bit::w))
    a.update.copy = c.out[out::adamw_8bit::w], a.update.copy_dtype = c.in_value(in::adamw_8bit::w).dtype;
  a.m = c.output<uint8_t>(out::adamw_8bit::m), a.m_max = c.output<float>(out::adamw_8bit::m_max);
  a.v = c.output<uint8_t>(out::adamw_8bit::v), a.v_max = c.output<float>(out::adamw_8bit::v_max);
  a.block = c.instr.attrs.integer("block");
  a.float8 = c.instr.attrs.has("codes");
  auto f = CREST_SIMD_PICK(quantized_functions).adamw;
  split(c, c.in_value(in::adamw_8bit::master).numel(), a.block, [&](int64_t begin, int64_t end) { f(a, begin, end); });
}

std::string reject_8bit(const KernelQuery& q) {
  for (size_t i : {in::adamw_8bit::g, in::adamw_8bit::w})
    if (q.has(i))
      if (std::string why = check_float(q.in(i)); !why.empty()) return why;
  if (q.in(in::adamw_8bit::m_max).dtype != DType::f32) return q.in(in::adamw_8bit::m_max).name + ": takes f32";
  if (q.instr.attrs.integer("block") > largest_block) return "takes blocks of up to 4096 elements";
  return {};
}

// Everything is floats but the scalars and split master weights.
std::string reject(const KernelQuery& q) {
  for (size_t i = parameter_input; i < q.instr.in.size(); ++i)
    if (q.has(i) && q.in(i).dtype != DType::u16)
      if (std::string why = check_float(q.in(i)); !why.empty()) return why;
  return {};
}

void launch_axpby(const KernelCall& c) {
  auto* scalars = c.input<Scalars>(in::axpby::scalars);
  if (scalars->found_inf) return;
  const Attrs& attrs = c.instr.attrs;
  double log_beta = std::log(attrs.number("beta", 0.0));
  auto factor = [&](const char* by) {
    return attrs.has(by) ? step_factor(*parse_step_factor(attrs.text(by)), log_beta, *scalars) : 1.0;
  };
  AxpbyArgs a{};
  a.a = float(attrs.number("a") * factor("a_by") - double(scalars->lr) * attrs.number("decay", 0.0));
  a.b = float(attrs.number("b", 0.0) * factor("b_by"));
  a.c = float(attrs.number("c", -0.0));  // -0 + x is x also for -0
  a.divide = attrs.integer("divide", 0) != 0;
  a.weights = attrs.integer("weights", 0) != 0;
  a.x = c.out[out::axpby::x], a.x_dtype = c.in_value(in::axpby::x).dtype;
  if (c.has(in::axpby::y)) a.y = c.in[in::axpby::y], a.y_dtype = c.in_value(in::axpby::y).dtype;
  if (c.has(in::axpby::z)) a.z = c.in[in::axpby::z], a.z_dtype = c.in_value(in::axpby::z).dtype;
  auto f = CREST_SIMD_PICK(optimizer_functions).axpby;
  split(c, c.in_value(in::axpby::x).numel(), 64, [&](int64_t begin, int64_t end) { f(a, begin, end); });
}

void launch_sqrt(const KernelCall& c) {
  auto f = CREST_SIMD_PICK(optimizer_functions).sqrt;
  split(c, c.in_value(in::sqrt::x).numel(), 64, [&](int64_t begin, int64_t end) {
    f(c.in[in::sqrt::x], c.out[out::sqrt::y], c.in_value(in::sqrt::x).dtype, begin, end);
  });
}

std::string accept(const KernelQuery&) { return {}; }

void launch_finish(const KernelCall& c) {
  auto& s = *c.output<Scalars>(out::finish_step::scalars);
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

#define CREST_UPDATE_KERNEL(op, inputs, outputs)                                                \
  Kernel op##_kernel() {                                                                        \
    constexpr size_t states = update_rules::op<ScalarMath<float>>::states;                      \
    return {#op, "cpu." #op ".simd", reject, nullptr, nullptr, launch<UpdateRule::op, states>}; \
  }
CREST_UPDATE_OPS(CREST_UPDATE_KERNEL)
#undef CREST_UPDATE_KERNEL
Kernel adamw_8bit_kernel() { return {"adamw_8bit", "cpu.adamw_8bit.simd", reject_8bit, nullptr, nullptr, launch_8bit}; }
Kernel axpby_kernel() { return {"axpby", "cpu.axpby.simd", reject, nullptr, nullptr, launch_axpby}; }
Kernel sqrt_kernel() { return {"sqrt", "cpu.sqrt.simd", check_all_float, nullptr, nullptr, launch_sqrt}; }
Kernel finish_step_kernel() { return {"finish_step", "cpu.finish_step.host", accept, nullptr, nullptr, launch_finish}; }

}  // namespace crest::cpu
