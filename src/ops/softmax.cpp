// Softmax over rows, optionally of scaled and causally masked scores.
#include "ops/index.h"
#include "ops/pointwise.h"
#include "program/builder.h"

namespace crest {

// The optional attributes of both: `scale`, and `causal` 1, for which the rows are those of square scores.
static void check_attributes(const Infer& c) {
  rules::at_least_rank(c, 0, 1);
  if (c.attrs().has("scale")) rules::number(c, "scale");
  if (!rules::flag(c, "causal")) return;
  rules::rank(c, 0, 4);
  c.check(c.in(0).shape[2] == c.in(0).shape[3], "causal scores must be square");
}

static void infer_softmax(Infer& c) {
  rules::inputs(c, 1, 1);
  check_attributes(c);
  rules::unary(c);
}

static void infer_softmax_grad(Infer& c) {
  rules::inputs(c, 2, 2);
  check_attributes(c);
  rules::binary(c);
}

// Of causal scores only what lies on or below the diagonal is read and computed; zeros are written above.
template <int per_element>
static Cost cost(const Program& p, const Instr& i) {
  Cost c = elementwise_cost<per_element>(p, i);
  if (!i.attrs.integer("causal", 0)) return c;
  double size = double(p.at(i.in[0]).shape.back()), visible = (size + 1) / (2 * size);
  c.flops *= visible, c.bytes_read *= visible;
  return c;
}

static void grad(Grad& g) {
  if (g.needs(0)) g.add(0, g.builder().emit1("softmax_grad", {g.dout(0), g.out(0)}, g.attrs()));
}

const OpDef op_softmax = {.name = "softmax",
                          .help = "x[..,C] -> softmax of each row of scale x, causal or not; -inf gives 0",
                          .op_class = OpClass::normalisation,
                          .infer = infer_softmax,
                          .cost = cost<5>,
                          .grad = grad,
                          .cheap = true,
                          .full_precision = true};

const OpDef op_softmax_grad = {.name = "softmax_grad",
                               .help = "dy, y -> scale y (dy - sum(dy y))",
                               .op_class = OpClass::normalisation,
                               .infer = infer_softmax_grad,
                               .cost = cost<4>,
                               .may_overlay = {{0, 0}},
                               .cheap = true};

}  // namespace crest
