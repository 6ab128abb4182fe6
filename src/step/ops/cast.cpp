// Conversion to another element type. The autograd pass passes the gradient of a cast weight
// through (the contractions already produce it in the dtype of parameter gradients); the rule here
// is for activations.
#include "ops/index.h"
#include "ops/rules.h"
#include "program/builder.h"
#include "program/place.h"

namespace crest {

static void infer(Infer& c) {
  rules::inputs(c, 1, 1);
  rules::contiguous(c);
  rules::floating(c, in::cast::x);
  c.check(c.attrs().has("dtype"), "attribute 'dtype' is missing");
  DType to = c.dtype_attr(DType::f32);
  c.check(is_float(to), "attribute 'dtype' must be a floating-point dtype");
  c.out(to, c.in(in::cast::x).shape);
}

static void grad(Grad& g) {
  if (!g.needs(in::cast::x)) return;
  Attrs back;
  back.set("dtype", name(g.builder().at(g.in(in::cast::x)).dtype));
  g.add(in::cast::x, g.builder().emit1("cast", {g.dout(out::cast::y)}, back));
}

const OpDef op_cast = {.name = "cast",
                       .inputs = in::cast::names,
                       .outputs = out::cast::names,
                       .help = "x -> x in another dtype, rounded to nearest even",
                       .op_class = OpClass::elementwise,
                       .infer = infer,
                       .place = cut<".. -> ..; .. linear">,
                       .cost = elementwise_cost<0>,
                       .grad = grad,
                       .may_overlay = {{out::cast::y, in::cast::x}},
                       .pitched_in = {in::cast::x},
                       .pitched_out = {out::cast::y},
                       .pointwise = true,
                       .cheap = true};

}  // namespace crest
