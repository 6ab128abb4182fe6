// SiLU (swish), the gate of SwiGLU.
#include "ops/index.h"
#include "ops/pointwise.h"
#include "program/builder.h"
#include "program/place.h"

namespace crest {

static void grad(Grad& g) {
  if (g.needs(in::silu::x))
    g.add(in::silu::x, g.builder().emit1("silu_grad", {g.dout(out::silu::y), g.in(in::silu::x)}));
}

const OpDef op_silu = {.name = "silu",
                       .inputs = in::silu::names,
                       .outputs = out::silu::names,
                       .help = "x -> x sigmoid(x)",
                       .op_class = OpClass::elementwise,
                       .infer = rules::unary,
                       .place = cut<".. -> ..; ..">,
                       .cost = elementwise_cost<4>,
                       .grad = grad,
                       .may_overlay = {{out::silu::y, in::silu::x}},
                       .pointwise = true,
                       .cheap = true};

const OpDef op_silu_grad = {
    .name = "silu_grad",
    .inputs = in::silu_grad::names,
    .outputs = out::silu_grad::names,
    .help = "dy, x -> dy silu'(x)",
    .op_class = OpClass::elementwise,
    .infer = rules::binary,
    .place = cut<".. -> ..; ..">,
    .cost = elementwise_cost<8>,
    .may_overlay = {{out::silu_grad::dx, in::silu_grad::dy}, {out::silu_grad::dx, in::silu_grad::x}},
    .pointwise = true,
    .cheap = true};

}  // namespace crest
