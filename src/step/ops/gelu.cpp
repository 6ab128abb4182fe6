// GELU (Hendrycks & Gimpel 2016, section 2): GPT-2's tanh form, and the exact form, PyTorch's
// default.
#include "ops/index.h"
#include "ops/pointwise.h"
#include "program/builder.h"
#include "program/place.h"

namespace crest {

static void grad(Grad& g) {
  if (g.needs(in::gelu::x))
    g.add(in::gelu::x, g.builder().emit1("gelu_grad", {g.dout(out::gelu::y), g.in(in::gelu::x)}));
}

static void grad_erf(Grad& g) {
  if (g.needs(in::gelu_erf::x))
    g.add(in::gelu_erf::x, g.builder().emit1("gelu_erf_grad", {g.dout(out::gelu_erf::y), g.in(in::gelu_erf::x)}));
}

const OpDef op_gelu = {.name = "gelu",
                       .inputs = in::gelu::names,
                       .outputs = out::gelu::names,
                       .help = "x -> x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))",
                       .op_class = OpClass::elementwise,
                       .infer = rules::unary,
                       .place = cut<".. -> ..; ..">,
                       .cost = elementwise_cost<9>,
                       .grad = grad,
                       .may_overlay = {{out::gelu::y, in::gelu::x}},
                       .pointwise = true,
                       .cheap = true};

const OpDef op_gelu_grad = {
    .name = "gelu_grad",
    .inputs = in::gelu_grad::names,
    .outputs = out::gelu_grad::names,
    .help = "dy, x -> dy gelu'(x)",
    .op_class = OpClass::elementwise,
    .infer = rules::binary,
    .place = cut<".. -> ..; ..">,
    .cost = elementwise_cost<16>,
    .may_overlay = {{out::gelu_grad::dx, in::gelu_grad::dy}, {out::gelu_grad::dx, in::gelu_grad::x}},
    .pointwise = true,
    .cheap = true};

const OpDef op_gelu_erf = {.name = "gelu_erf",
                           .inputs = in::gelu_erf::names,
                           .outputs = out::gelu_erf::names,
                           .help = "x -> x/2 (1 + erf(x / sqrt(2)))",
                           .op_class = OpClass::elementwise,
                           .infer = rules::unary,
                           .place = cut<".. -> ..; ..">,
                           .cost = elementwise_cost<16>,
                           .grad = grad_erf,
                           .may_overlay = {{out::gelu_erf::y, in::gelu_erf::x}},
                           .pointwise = true,
                           .cheap = true};

const OpDef op_gelu_erf_grad = {
    .name = "gelu_erf_grad",
    .inputs = in::gelu_erf_grad::names,
    .outputs = out::gelu_erf_grad::names,
    .help = "dy, x -> dy gelu_erf'(x)",
    .op_class = OpClass::elementwise,
    .infer = rules::binary,
    .place = cut<".. -> ..; ..">,
    .cost = elementwise_cost<20>,
    .may_overlay = {{out::gelu_erf_grad::dx, in::gelu_erf_grad::dy}, {out::gelu_erf_grad::dx, in::gelu_erf_grad::x}},
    .pointwise = true,
    .cheap = true};

}  // namespace crest
