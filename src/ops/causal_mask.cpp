// Causal mask of attention scores.
#include "ops/index.h"
#include "ops/pointwise.h"

namespace crest {

static void infer(Infer& c) {
  rules::inputs(c, 1, 2);
  rules::rank(c, 0, 4);
  c.check(c.in(0).shape[2] == c.in(0).shape[3], "scores must be square");
  if (c.has(1)) rules::positions(c, 1, {c.in(0).shape[0], c.in(0).shape[2]});
  rules::contiguous(c);
  rules::floating(c, 0);
  c.out_like(0);
}

// The softmax that follows gives masked scores the gradient 0 already.
static void grad(Grad& g) {
  if (g.needs(0)) g.add(0, g.dout(0));
}

const OpDef op_causal_mask = {
    .name = "causal_mask",
    .help = "s[B,H,T,T], [positions i32[B,T]] -> s with -inf above the diagonal, and left of the row's document",
    .op_class = OpClass::elementwise,
    .infer = infer,
    .cost = elementwise_cost<0>,
    .grad = grad,
    .cheap = true};

}  // namespace crest
