// Change of the element type. The gradient of a cast weight is passed through by the autograd pass (the contractions
// already produce it in the dtype of parameter gradients); the rule here is the one of activations.
#include "ops/index.h"
#include "ops/rules.h"
#include "program/builder.h"

namespace crest {

static void infer(Infer& c) {
  rules::inputs(c, 1, 1);
  rules::contiguous(c);
  rules::floating(c, 0);
  c.check(c.attrs().has("dtype"), "attribute 'dtype' is missing");
  DType to = c.dtype_attr(DType::f32);
  c.check(is_float(to), "attribute 'dtype' must be a floating-point dtype");
  c.out(to, c.in(0).shape);
}

static void grad(Grad& g) {
  if (!g.needs(0)) return;
  Attrs back;
  back.set("dtype", name(g.builder().at(g.in(0)).dtype));
  g.add(0, g.builder().emit1("cast", {g.dout(0)}, back));
}

const OpDef op_cast = {.name = "cast",
                       .help = "x -> x in another dtype, rounded to nearest even",
                       .op_class = OpClass::elementwise,
                       .infer = infer,
                       .cost = elementwise_cost<0>,
                       .grad = grad,
                       .may_overlay = {{0, 0}},
                       .pointwise = true,
                       .cheap = true};

}  // namespace crest
