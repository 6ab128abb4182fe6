// The causal mask of attention scores.
#include "ops/index.h"
#include "ops/pointwise.h"
#include "program/place.h"

namespace crest {

static void infer(Infer& c) {
  rules::inputs(c, 1, 2);
  rules::rank(c, in::causal_mask::s, 4);
  const Shape& s = c.in(in::causal_mask::s).shape;
  c.check(s[2] == s[3], "scores must be square");
  if (c.has(in::causal_mask::positions)) rules::positions(c, in::causal_mask::positions, {s[0], s[2]});
  rules::window(c);
  rules::contiguous(c);
  rules::floating(c, in::causal_mask::s);
  c.out_like(in::causal_mask::s);
}

// The following softmax already gives masked scores the gradient 0.
static void grad(Grad& g) {
  if (g.needs(in::causal_mask::s)) g.add(in::causal_mask::s, g.dout(out::causal_mask::y));
}

const OpDef op_causal_mask = {
    .name = "causal_mask",
    .inputs = in::causal_mask::names,
    .outputs = out::causal_mask::names,
    .help =
        "s[B,H,T,T], [positions i32[B,T]] -> s with -inf above the diagonal, and left of the row's document "
        "and window",
    .op_class = OpClass::elementwise,
    .infer = infer,
    .place = cut<"BHTU, BV -> BHTU; B H">,
    .cost = elementwise_cost<0>,
    .grad = grad,
    .cheap = true};

}  // namespace crest
