// Dropout whose mask is a function of (seed, global sample, rng_id, element), so nothing is saved for the gradient.
#include "ops/index.h"
#include "ops/rules.h"
#include "program/builder.h"

namespace crest {

static void infer(Infer& c) {
  rules::inputs(c, 2, 2);
  rules::contiguous(c);
  rules::at_least_rank(c, 0, 1);
  rules::floating(c, 0);
  rules::scalars(c, 1);
  double p = rules::number(c, "p");
  c.check(p >= 0 && p < 1, "attribute 'p' must lie in [0, 1)");
  rules::integer(c, "rng_id", 0);
  c.out_like(0);
}

static void grad(Grad& g) {
  if (g.needs(0)) g.add(0, g.builder().emit1("dropout", {g.dout(0), g.in(1)}, g.attrs()));
}

const OpDef op_dropout = {.name = "dropout",
                          .help = "x[S,..], scalars -> x with elements dropped with probability p, others / (1 - p)",
                          .op_class = OpClass::elementwise,
                          .infer = infer,
                          .cost = elementwise_cost<2>,
                          .grad = grad,
                          .may_overlay = {{0, 0}},
                          .cheap = true};

}  // namespace crest
