// ReLU.
#include "ops/index.h"
#include "ops/pointwise.h"
#include "program/builder.h"
#include "program/place.h"

namespace crest {

static void grad(Grad& g) {
  if (g.needs(in::relu::x))
    g.add(in::relu::x, g.builder().emit1("relu_grad", {g.dout(out::relu::y), g.in(in::relu::x)}));
}

const OpDef op_relu = {.name = "relu",
                       .inputs = in::relu::names,
                       .outputs = out::relu::names,
                       .help = "x -> max(x, 0)",
                       .op_class = OpClass::elementwise,
                       .infer = rules::unary,
                       .place = cut<".. -> ..; ..">,
                       .cost = elementwise_cost<1>,
                       .grad = grad,
                       .may_overlay = {{out::relu::y, in::relu::x}},
                       .pointwise = true,
                       .cheap = true};

const OpDef op_relu_grad = {
    .name = "relu_grad",
    .inputs = in::relu_grad::names,
    .outputs = out::relu_grad::names,
    .help = "dy, x -> dy where x > 0, else 0",
    .op_class = OpClass::elementwise,
    .infer = rules::binary,
    .place = cut<".. -> ..; ..">,
    .cost = elementwise_cost<1>,
    .may_overlay = {{out::relu_grad::dx, in::relu_grad::dy}, {out::relu_grad::dx, in::relu_grad::x}},
    .pointwise = true,
    .cheap = true};

}  // namespace crest
