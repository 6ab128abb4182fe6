// x = a x + b y z: the building block of optimizers without a kernel for the whole step. It is not
// pointwise, so no fused body absorbs it: one instruction is one pass over memory. weights=1: x
// becomes weights of fp32 masters, rounded like all such weights (core/split_float.h).
#include "core/step_factor.h"
#include "ops/index.h"
#include "ops/rules.h"
#include "program/place.h"

namespace crest {

static void factor(const Infer& c, const char* key) {
  if (!c.attrs().has(key)) return;
  auto f = parse_step_factor(c.attrs().text(key));
  c.check(f.has_value(), "attributes 'a_by' and 'b_by' must be one, grad_factor, lr, step_size or root_correction");
  if (*f != StepFactor::step_size && *f != StepFactor::root_correction) return;
  double beta = rules::number(c, "beta");
  c.check(beta >= 0 && beta < 1, "attribute 'beta' must be in [0, 1)");
}

static void infer(Infer& c) {
  rules::inputs(c, 2, 4);
  rules::contiguous(c);
  rules::scalars(c, in::axpby::scalars);
  for (size_t i = in::axpby::x; i < c.inputs(); ++i)
    if (c.has(i)) {
      rules::floating(c, i);
      c.check(c.in(i).numel() == c.in(in::axpby::x).numel(), "x, y and z must have the same number of elements");
    }
  c.check(c.has(in::axpby::y) || !c.has(in::axpby::z), "z needs y");
  rules::number(c, "a");
  if (c.has(in::axpby::y)) rules::number(c, "b");
  if (c.attrs().has("decay")) rules::number(c, "decay");
  rules::flag(c, "divide");
  rules::flag(c, "weights");
  factor(c, "a_by");
  factor(c, "b_by");
  c.out_in_place(in::axpby::x);
}

const OpDef op_axpby = {.name = "axpby",
                        .inputs = in::axpby::names,
                        .outputs = out::axpby::names,
                        .help = "scalars, x, [y], [z] -> x: a x + b y z + c, skipped when found_inf",
                        .op_class = OpClass::optimizer,
                        .infer = infer,
                        .place = cut<"- -> -">,
                        .cost = elementwise_cost<4>};

}  // namespace crest
