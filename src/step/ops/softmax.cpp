// Softmax over rows, optionally of scaled and causally masked scores.
#include "ops/index.h"
#include "ops/pointwise.h"
#include "program/builder.h"
#include "program/place.h"

namespace crest {

// The optional attributes of both: `scale`; and `causal`, 1 if input `x` holds the rows of square
// scores.
static void check_attributes(const Infer& c, size_t x) {
  rules::at_least_rank(c, x, 1);
  if (c.attrs().has("scale")) rules::number(c, "scale");
  if (!rules::flag(c, "causal")) return;
  rules::rank(c, x, 4);
  c.check(c.in(x).shape[2] == c.in(x).shape[3], "causal scores must be square");
}

static void infer_softmax(Infer& c) {
  rules::inputs(c, 1, 1);
  check_attributes(c, in::softmax::x);
  rules::unary(c);
}

static void infer_softmax_grad(Infer& c) {
  rules::inputs(c, 2, 2);
  check_attributes(c, in::softmax_grad::dy);
  rules::binary(c);
}

// For causal scores, only elements on or below the diagonal are read and computed; zeros are
// written above.
template <int per_element>
static Cost cost(const Program& p, const Instr& i) {
  Cost c = elementwise_cost<per_element>(p, i);
  if (!i.attrs.integer("causal", 0)) return c;
  double size = double(p.at(i.in[0]).shape.back()), visible = (size + 1) / (2 * size);
  c.flops *= visible, c.bytes_read *= visible;
  return c;
}

static void grad(Grad& g) {
  if (!g.needs(in::softmax::x)) return;
  std::vector<ValueId> in = {g.dout(out::softmax::y), g.out(out::softmax::y)};
  g.add(in::softmax::x, g.builder().emit1("softmax_grad", std::move(in), g.attrs()));
}

// The visible part of a causal row depends on its place.
static const char* place(const Program& p, const Instr& i) {
  return i.attrs.integer("causal", 0) != 0 ? cut<"BHTU -> BHTU; B H">(p, i) : cut<"..C -> ..C; ..">(p, i);
}

const OpDef op_softmax = {.name = "softmax",
                          .inputs = in::softmax::names,
                          .outputs = out::softmax::names,
                          .help = "x[..,C] -> softmax of each row of scale x, causal or not; -inf gives 0",
                          .op_class = OpClass::normalization,
                          .infer = infer_softmax,
                          .place = place,
                          .cost = cost<5>,
                          .grad = grad,
                          .cheap = true,
                          .full_precision = true};

const OpDef op_softmax_grad = {.name = "softmax_grad",
                               .inputs = in::softmax_grad::names,
                               .outputs = out::softmax_grad::names,
                               .help = "dy, y -> scale y (dy - sum(dy y))",
                               .op_class = OpClass::normalization,
                               .infer = infer_softmax_grad,
                               .place = place,
                               .cost = cost<4>,
                               .may_overlay = {{out::softmax_grad::dx, in::softmax_grad::dy}},
                               .cheap = true};

}  // namespace crest
