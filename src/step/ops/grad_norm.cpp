// The global L2 norm of all gradients. It gives the clipping factor and the found-inf flag of the
// step.
#include "ops/index.h"
#include "ops/rules.h"
#include "program/place.h"

namespace crest {

static void infer(Infer& c) {
  c.check(c.inputs() >= 2, "needs scalars and at least one gradient");
  rules::inputs(c, c.inputs(), c.inputs());
  rules::contiguous(c);
  rules::scalars(c, in::grad_norm::scalars);
  for (size_t i = in::grad_norm::gradients; i < c.inputs(); ++i) rules::floating(c, i);
  c.check(rules::number(c, "clip") >= 0, "attribute 'clip' must not be negative");
  if (c.attrs().has("parts")) rules::integer(c, "parts", 1);
  if (rules::flag(c, "squares")) {
    for (size_t i = in::grad_norm::gradients; i < c.inputs(); ++i) {
      rules::dtype(c, i, DType::f64);
      rules::shape(c, i, {1});
    }
  }
  c.out_in_place(in::grad_norm::scalars);
}

static Cost cost(const Program& p, const Instr& i) {
  double n = 0;
  for (size_t k = in::grad_norm::gradients; k < i.in.size(); ++k) n += double(p.at(i.in[k]).numel());
  return traffic_with_flops(p, i, 2 * n);
}

const OpDef op_grad_norm = {.name = "grad_norm",
                            .inputs = in::grad_norm::names,
                            .outputs = out::grad_norm::names,
                            .help = "scalars, g1, g2, .. -> scalars: norm, found_inf and grad_factor of the step",
                            .op_class = OpClass::optimizer,
                            .infer = infer,
                            .place = cut<"- -> -">,
                            .cost = cost};

}  // namespace crest
