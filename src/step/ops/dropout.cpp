// Dropout. The mask is a function of (seed, global sample, rng_id, element), so nothing is saved
// for the gradient. Attribute `dtype`: with a cast before or after it, so x is rounded to the
// narrower dtype first, and the result, too.
#include "core/error.h"
#include "ops/index.h"
#include "ops/rules.h"
#include "program/builder.h"
#include "program/place.h"

namespace crest {

static void infer(Infer& c) {
  rules::inputs(c, 2, 2);
  rules::contiguous(c);
  rules::at_least_rank(c, in::dropout::x, 1);
  rules::floating(c, in::dropout::x);
  rules::dropout(c, in::dropout::scalars);
  DType t = c.dtype_attr(c.in(in::dropout::x).dtype);
  c.check(is_float(t), "attribute 'dtype' must be a floating-point dtype");
  c.out(t, c.in(in::dropout::x).shape);
}

static void grad(Grad& g) {
  if (g.attrs().has("dtype")) fail_internal("dropout with a cast has no gradient rule");
  if (g.needs(in::dropout::x))
    g.add(in::dropout::x,
          g.builder().emit1("dropout", {g.dout(out::dropout::y), g.in(in::dropout::scalars)}, g.attrs()));
}

// For rows shared by ranks (`seq`), or for heads.
static const char* place(const Program& p, const Instr& i) {
  return i.attrs.has("axes") && !i.attrs.has("seq") ? cut<"BH_, - -> BH_; B H@">(p, i) : cut<"*_, - -> *_; ..">(p, i);
}

const OpDef op_dropout = {
    .name = "dropout",
    .inputs = in::dropout::names,
    .outputs = out::dropout::names,
    .help = "x[S,..], scalars -> x with elements dropped with probability p, others / (1 - p), and cast",
    .op_class = OpClass::elementwise,
    .infer = infer,
    .place = place,
    .cost = elementwise_cost<2>,
    .grad = grad,
    .may_overlay = {{out::dropout::y, in::dropout::x}},
    .cheap = true};

}  // namespace crest
