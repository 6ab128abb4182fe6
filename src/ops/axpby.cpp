// x = a x + b y z: what optimizers are made of where no kernel of their own does the whole step. Not pointwise, so no
// fused body takes it in: one instruction is one pass over memory.
#include "core/step_factor.h"
#include "ops/index.h"
#include "ops/rules.h"

namespace crest {

static void factor(const Infer& c, const char* key) {
  if (!c.attrs().has(key)) return;
  auto f = parse_step_factor(c.attrs().word(key));
  c.check(f.has_value(), "attributes 'a_by' and 'b_by' must be one, grad_factor, lr, step_size or root_correction");
  if (*f != StepFactor::step_size && *f != StepFactor::root_correction) return;
  double beta = rules::number(c, "beta");
  c.check(beta >= 0 && beta < 1, "attribute 'beta' must lie in [0, 1)");
}

static void infer(Infer& c) {
  rules::inputs(c, 2, 4);
  rules::contiguous(c);
  rules::scalars(c, 0);
  for (size_t i = 1; i < c.inputs(); ++i)
    if (c.has(i)) {
      rules::floating(c, i);
      c.check(c.in(i).numel() == c.in(1).numel(), "x, y and z must have the same number of elements");
    }
  c.check(c.has(2) || !c.has(3), "z without y");
  rules::number(c, "a");
  if (c.has(2)) rules::number(c, "b");
  if (c.attrs().has("decay")) rules::number(c, "decay");
  rules::flag(c, "divide");
  factor(c, "a_by");
  factor(c, "b_by");
  c.out_in_place(1);
}

const OpDef op_axpby = {.name = "axpby",
                        .help = "scalars, x, [y], [z] -> x: a x + b y z + c, skipped when found_inf",
                        .op_class = OpClass::optimizer,
                        .infer = infer,
                        .cost = elementwise_cost<4>};

}  // namespace crest
