// What the element-wise optimizers share. Inputs: scalars, p, states.., g, [w], [c]; p, the states, w and c are updated
// in place, which makes them the outputs in this order. Nothing changes when scalars.found_inf is set.
//   p  the parameter: f32 (with w, its copy in half precision), or bf16, or u16: the low halves of f32 numbers whose
//      high halves are w in bf16 (core/split_float.h)
//   c  bf16, with rounding = "kahan": what the last rounding of p lost
// The attribute `rounding` belongs to bf16 parameters: absent (to nearest), "kahan", or "stochastic" (p and states;
// with `rng_id`). Where it is present, p takes values of bf16 whatever it is stored in, so that an oracle in f64
// rounds, too.
#pragma once
#include "ops/rules.h"

namespace crest {

enum class Rounding { nearest, kahan, stochastic };
// Of an instruction's attributes; inference has checked the word.
Rounding rounding_of(const Attrs& attrs);

// Positions of the optional inputs, given the number of states.
constexpr size_t gradient_input(size_t states) { return states + 2; }
constexpr size_t copy_input(size_t states) { return states + 3; }
constexpr size_t compensation_input(size_t states) { return states + 4; }

// `per_element` operations per element; the copy is read only where it holds the high halves of the parameters.
template <int per_element, size_t copy>
Cost update_cost(const Program& p, const Instr& i) {
  Cost c = elementwise_cost<per_element>(p, i);
  if (copy < i.in.size() && i.in[copy] != no_value && p.at(i.in[1]).dtype != DType::u16)
    c.bytes_read -= double(p.at(i.in[copy]).bytes());
  return c;
}

namespace rules {

// Input 1 holds master weights: f32, or the low halves of those whose high halves are the bf16 input `copy`.
void master(const Infer& c, size_t copy);
// `bf16`: the operation also takes bf16 parameters and states.
void update(Infer& c, size_t states, bool bf16 = false);
// Attribute in [0, 1).
double beta(const Infer& c, const char* key);

}  // namespace rules
}  // namespace crest
