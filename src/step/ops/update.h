// Shared by the element-wise optimizers. Inputs: scalars, p, states.., g, [w], [c]. p, the states,
// w and c are updated in place; they are also the outputs, in this order. Nothing changes if
// scalars.found_inf is set.
//   p  the parameter: f32 (with w, its copy in half precision), or bf16, or u16: the low halves of f32 numbers whose
//      high halves are w in bf16 (core/split_float.h)
//   c  bf16, with rounding = "kahan": the rounding error of p in its last update
// The attribute `rounding` is for bf16 parameters: absent (to nearest), "kahan", or "stochastic" (p
// and states; with `rng_id`). With it, p takes bf16 values in any storage, so an f64 oracle rounds
// too.
#pragma once
#include "core/scalars.h"
#include "core/step_factor.h"
#include "ops/rules.h"
#include "ops/update_rules.h"

namespace crest {

enum class Rounding { nearest, kahan, stochastic };
// From an instruction's attributes; inference has checked the word.
Rounding rounding_of(const Attrs& attrs);

// Positions of the operands. ops/index.h names them for each of these operations. With several
// states, the position of the first.
constexpr size_t scalars_input = 0, parameter_input = 1, state_input = 2;
constexpr size_t gradient_input(size_t states) { return state_input + states; }
constexpr size_t copy_input(size_t states) { return gradient_input(states) + 1; }
constexpr size_t compensation_input(size_t states) { return gradient_input(states) + 2; }
constexpr size_t parameter_output = 0, state_output = 1;
// A parameter has a copy or a compensation, never both.
constexpr size_t copy_output(size_t states) { return state_output + states; }
constexpr size_t compensation_output(size_t states) { return state_output + states; }

// The step constants in an instruction's attributes; absent ones are 0.
struct UpdateRates {
  double beta1, beta2, eps, weight_decay;  // beta1 is also called `momentum`
  double lr_factor;                        // of the learning rate of the step
  double log_beta1, log_beta2;             // natural logarithms; -infinity for 0

  explicit UpdateRates(const Attrs& attrs);
  // The values common to all steps; the rest is 0.
  template <class Factor>
  UpdateStep<Factor> fixed() const {
    UpdateStep<Factor> s = {};
    s.beta1 = Factor(beta1), s.beta2 = Factor(beta2), s.eps = Factor(eps);
    s.one_minus_beta1 = Factor(1 - beta1), s.one_minus_beta2 = Factor(1 - beta2);
    return s;
  }
  template <class Factor>
  UpdateStep<Factor> step(const Scalars& scalars) const {
    UpdateStep<Factor> s = fixed<Factor>();
    const double lr = double(scalars.lr) * lr_factor;
    s.gradient_factor = Factor(scalars.grad_factor), s.lr = Factor(lr);
    s.decay = Factor(lr * weight_decay);
    s.correction1 = Factor(1 / bias_correction(log_beta1, scalars.adam_step));
    s.correction2 = Factor(1 / bias_correction(log_beta2, scalars.adam_step));
    return s;
  }
};

// `per_element` operations per element. The copy is read only if it holds the high halves of the
// parameters.
template <int per_element, size_t copy>
Cost update_cost(const Program& p, const Instr& i) {
  Cost c = elementwise_cost<per_element>(p, i);
  if (copy < i.in.size() && i.in[copy] != no_value && p.at(i.in[parameter_input]).dtype != DType::u16)
    c.bytes_read -= double(p.at(i.in[copy]).bytes());
  return c;
}

namespace rules {

// Whether the parameter is a master weight: f32, or the low halves of f32 numbers with their high
// halves in the bf16 input `copy`.
void master(const Infer& c, size_t copy);
// `bf16`: the operation also supports bf16 parameters and states.
void update(Infer& c, size_t states, bool bf16 = false);
// Attributes weight_decay and [lr_factor].
void rates(const Infer& c);
// Attribute in [0, 1).
double beta(const Infer& c, const char* key);

}  // namespace rules
}  // namespace crest
