#include "ops/update.h"

#include <fmt/format.h>

#include <cmath>

namespace crest {

Rounding rounding_of(const Attrs& attrs) {
  if (!attrs.has("rounding")) return Rounding::nearest;
  return attrs.text("rounding") == "kahan" ? Rounding::kahan : Rounding::stochastic;
}

UpdateRates::UpdateRates(const Attrs& attrs)
    : beta1(attrs.number("beta1", attrs.number("momentum", 0.0))),
      beta2(attrs.number("beta2", 0.0)),
      eps(attrs.number("eps", 0.0)),
      weight_decay(attrs.number("weight_decay")),
      lr_factor(attrs.number("lr_factor", 1.0)),
      log_beta1(std::log(beta1)),
      log_beta2(std::log(beta2)) {}

namespace rules {

void rates(const Infer& c) {
  number(c, "weight_decay");
  c.check(!c.attrs().has("lr_factor") || number(c, "lr_factor") >= 0, "attribute 'lr_factor' must not be negative");
}

double beta(const Infer& c, const char* key) {
  double b = number(c, key);
  c.check(b >= 0 && b < 1, fmt::format("attribute '{}' must be in [0, 1)", key));
  return b;
}

void master(const Infer& c, size_t copy) {
  DType t = c.in(parameter_input).dtype;
  c.check(t == DType::f32 || t == DType::f64 || t == DType::u16,
          "master weights must be f32, or u16 (their low halves)");
  if (t == DType::u16)
    c.check(c.has(copy) && (c.in(copy).dtype == DType::bf16 || c.in(copy).dtype == DType::f64),
            "split master weights need bf16 weights");
}

void update(Infer& c, size_t states, bool bf16) {
  size_t g = gradient_input(states), w = copy_input(states), kahan = compensation_input(states);
  inputs(c, g + 1, kahan + 1);
  contiguous(c);
  scalars(c, scalars_input);
  DType t = c.in(state_input).dtype;  // of the states
  if (bf16)
    c.check(t == DType::f32 || t == DType::f64 || t == DType::bf16, "parameters and states must be f32 or bf16");
  else
    c.check(t == DType::f32 || t == DType::f64, "master weights and states must be f32");
  if (c.in(parameter_input).dtype == DType::u16)
    c.check(t != DType::bf16, "the states of a split master must be f32"), master(c, w);
  else
    c.same_dtype(state_input, parameter_input);
  for (size_t i = state_input; i < c.inputs(); ++i)
    if (c.has(i)) {
      c.same_shape(i, parameter_input);
      floating(c, i);
      if (i < g) c.same_dtype(i, state_input);
    }
  bool compensated = false;
  if (c.attrs().has("rounding")) {
    const std::string& how = c.attrs().text("rounding");
    c.check(how == "kahan" || how == "stochastic", "attribute 'rounding' must be \"kahan\" or \"stochastic\"");
    c.check(t != DType::f32, "attribute 'rounding' needs bf16 parameters");
    compensated = how == "kahan";
    if (!compensated) integer(c, "rng_id", 0);
  }
  c.check(c.has(kahan) == compensated, "the compensation goes with rounding = \"kahan\"");
  if (compensated) c.same_dtype(kahan, state_input);
  if (t == DType::bf16) c.check(!c.has(w), "bf16 parameters have no copy");
  rates(c);
  for (size_t i = parameter_input; i < c.inputs(); ++i)
    if (c.has(i) && i != g) c.out_in_place(i);
}

}  // namespace rules
}  // namespace crest
