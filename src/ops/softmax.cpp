// Softmax over rows.
#include "ops/index.h"
#include "ops/pointwise.h"
#include "program/builder.h"

namespace crest {

static void infer_softmax(Infer& c) {
  rules::inputs(c, 1, 1);
  rules::at_least_rank(c, 0, 1);
  rules::unary(c);
}

static void infer_softmax_grad(Infer& c) {
  rules::inputs(c, 2, 2);
  rules::at_least_rank(c, 0, 1);
  rules::binary(c);
}

static void grad(Grad& g) {
  if (g.needs(0)) g.add(0, g.builder().emit1("softmax_grad", {g.dout(0), g.out(0)}));
}

const OpDef op_softmax = {.name = "softmax",
                          .help = "x[..,C] -> softmax of each row; -inf gives 0",
                          .op_class = OpClass::normalisation,
                          .infer = infer_softmax,
                          .cost = elementwise_cost<5>,
                          .grad = grad,
                          .cheap = true,
                          .full_precision = true};

const OpDef op_softmax_grad = {.name = "softmax_grad",
                               .help = "dy, y -> y (dy - sum(dy y))",
                               .op_class = OpClass::normalisation,
                               .infer = infer_softmax_grad,
                               .cost = elementwise_cost<4>,
                               .may_overlay = {{0, 0}},
                               .cheap = true};

}  // namespace crest
