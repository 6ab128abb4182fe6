// Causal mask of attention scores.
#include "ops/index.h"
#include "ops/pointwise.h"

namespace crest {

static void infer(Infer& c) {
  rules::inputs(c, 1, 1);
  rules::rank(c, 0, 4);
  c.check(c.in(0).shape[2] == c.in(0).shape[3], "scores must be square");
  rules::unary(c);
}

// The softmax that follows gives masked scores the gradient 0 already.
static void grad(Grad& g) {
  if (g.needs(0)) g.add(0, g.dout(0));
}

const OpDef op_causal_mask = {.name = "causal_mask",
                              .help = "s[B,H,T,T] -> s with -inf above the diagonal",
                              .op_class = OpClass::elementwise,
                              .infer = infer,
                              .cost = elementwise_cost<0>,
                              .grad = grad,
                              .cheap = true};

}  // namespace crest
