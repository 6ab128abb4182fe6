// GELU (Hendrycks & Gimpel 2016, section 2): its tanh form, as GPT-2 uses it, and the exact one, PyTorch's default.
#include "ops/index.h"
#include "ops/pointwise.h"
#include "program/builder.h"

namespace crest {

static void grad(Grad& g) {
  if (g.needs(0)) g.add(0, g.builder().emit1("gelu_grad", {g.dout(0), g.in(0)}));
}

static void grad_erf(Grad& g) {
  if (g.needs(0)) g.add(0, g.builder().emit1("gelu_erf_grad", {g.dout(0), g.in(0)}));
}

const OpDef op_gelu = {.name = "gelu",
                       .help = "x -> x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))",
                       .op_class = OpClass::elementwise,
                       .infer = rules::unary,
                       .cost = elementwise_cost<9>,
                       .grad = grad,
                       .may_overlay = {{0, 0}},
                       .pointwise = true,
                       .cheap = true};

const OpDef op_gelu_grad = {.name = "gelu_grad",
                            .help = "dy, x -> dy gelu'(x)",
                            .op_class = OpClass::elementwise,
                            .infer = rules::binary,
                            .cost = elementwise_cost<16>,
                            .may_overlay = {{0, 0}, {0, 1}},
                            .pointwise = true,
                            .cheap = true};

const OpDef op_gelu_erf = {.name = "gelu_erf",
                           .help = "x -> x/2 (1 + erf(x / sqrt(2)))",
                           .op_class = OpClass::elementwise,
                           .infer = rules::unary,
                           .cost = elementwise_cost<16>,
                           .grad = grad_erf,
                           .may_overlay = {{0, 0}},
                           .pointwise = true,
                           .cheap = true};

const OpDef op_gelu_erf_grad = {.name = "gelu_erf_grad",
                                .help = "dy, x -> dy gelu_erf'(x)",
                                .op_class = OpClass::elementwise,
                                .infer = rules::binary,
                                .cost = elementwise_cost<20>,
                                .may_overlay = {{0, 0}, {0, 1}},
                                .pointwise = true,
                                .cheap = true};

}  // namespace crest
