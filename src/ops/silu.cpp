// SiLU (swish), the gate of SwiGLU.
#include "ops/index.h"
#include "ops/pointwise.h"
#include "program/builder.h"

namespace crest {

static void grad(Grad& g) {
  if (g.needs(0)) g.add(0, g.builder().emit1("silu_grad", {g.dout(0), g.in(0)}));
}

const OpDef op_silu = {.name = "silu",
                       .help = "x -> x sigmoid(x)",
                       .op_class = OpClass::elementwise,
                       .infer = rules::unary,
                       .cost = elementwise_cost<4>,
                       .grad = grad,
                       .may_overlay = {{0, 0}},
                       .pointwise = true,
                       .cheap = true};

const OpDef op_silu_grad = {.name = "silu_grad",
                            .help = "dy, x -> dy silu'(x)",
                            .op_class = OpClass::elementwise,
                            .infer = rules::binary,
                            .cost = elementwise_cost<8>,
                            .may_overlay = {{0, 0}, {0, 1}},
                            .pointwise = true,
                            .cheap = true};

}  // namespace crest
