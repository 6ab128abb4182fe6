// Elementary pointwise operations: what decomposed activations and residual sums are made of.
#include "ops/pointwise.h"

#include "ops/index.h"
#include "program/builder.h"

namespace crest {

static void infer_with_value(Infer& c) {
  rules::number(c, "value");
  rules::unary(c);
}

static void grad_add(Grad& g) {
  for (size_t i = 0; i < 2; ++i)
    if (g.needs(i)) g.add(i, g.dout(0));
}

static void grad_mul(Grad& g) {
  if (g.needs(0)) g.add(0, g.builder().emit1("mul", {g.dout(0), g.in(1)}));
  if (g.needs(1)) g.add(1, g.builder().emit1("mul", {g.dout(0), g.in(0)}));
}

static void grad_scale(Grad& g) {
  if (g.needs(0)) g.add(0, g.builder().emit1("scale", {g.dout(0)}, g.attrs()));
}

static void grad_add_scalar(Grad& g) {
  if (g.needs(0)) g.add(0, g.dout(0));
}

static void grad_tanh(Grad& g) {
  if (g.needs(0)) g.add(0, g.builder().emit1("tanh_grad", {g.dout(0), g.out(0)}));
}

const OpDef op_add = {.name = "add",
                      .help = "a, b -> a + b",
                      .op_class = OpClass::elementwise,
                      .infer = rules::binary,
                      .cost = elementwise_cost<1>,
                      .grad = grad_add,
                      .may_overlay = {{0, 0}, {0, 1}},
                      .pointwise = true,
                      .cheap = true};

const OpDef op_mul = {.name = "mul",
                      .help = "a, b -> a b, element by element",
                      .op_class = OpClass::elementwise,
                      .infer = rules::binary,
                      .cost = elementwise_cost<1>,
                      .grad = grad_mul,
                      .may_overlay = {{0, 0}, {0, 1}},
                      .pointwise = true,
                      .cheap = true};

const OpDef op_scale = {.name = "scale",
                        .help = "x -> x value",
                        .op_class = OpClass::elementwise,
                        .infer = infer_with_value,
                        .cost = elementwise_cost<1>,
                        .grad = grad_scale,
                        .may_overlay = {{0, 0}},
                        .pointwise = true,
                        .cheap = true};

const OpDef op_add_scalar = {.name = "add_scalar",
                             .help = "x -> x + value",
                             .op_class = OpClass::elementwise,
                             .infer = infer_with_value,
                             .cost = elementwise_cost<1>,
                             .grad = grad_add_scalar,
                             .may_overlay = {{0, 0}},
                             .pointwise = true,
                             .cheap = true};

const OpDef op_tanh = {.name = "tanh",
                       .help = "x -> tanh(x)",
                       .op_class = OpClass::elementwise,
                       .infer = rules::unary,
                       .cost = elementwise_cost<1>,
                       .grad = grad_tanh,
                       .may_overlay = {{0, 0}},
                       .pointwise = true,
                       .cheap = true};

const OpDef op_tanh_grad = {.name = "tanh_grad",
                            .help = "dy, y -> dy (1 - y^2)",
                            .op_class = OpClass::elementwise,
                            .infer = rules::binary,
                            .cost = elementwise_cost<3>,
                            .may_overlay = {{0, 0}, {0, 1}},
                            .pointwise = true,
                            .cheap = true};

}  // namespace crest
