// Elementary pointwise operations, the parts of decomposed activations and residual sums.
#include "ops/pointwise.h"

#include "ops/index.h"
#include "program/builder.h"
#include "program/place.h"

namespace crest {

static void infer_with_value(Infer& c) {
  rules::number(c, "value");
  rules::unary(c);
}

static void infer_add(Infer& c) {
  rules::binary(c);
  if (!rules::flag(c, "in_place")) return;
  c.outs.clear();
  c.out_in_place(in::add::a);
}

static void grad_add(Grad& g) {
  for (size_t i : {in::add::a, in::add::b})
    if (g.needs(i)) g.add(i, g.dout(out::add::y));
}

static void grad_mul(Grad& g) {
  if (g.needs(in::mul::a)) g.add(in::mul::a, g.builder().emit1("mul", {g.dout(out::mul::y), g.in(in::mul::b)}));
  if (g.needs(in::mul::b)) g.add(in::mul::b, g.builder().emit1("mul", {g.dout(out::mul::y), g.in(in::mul::a)}));
}

static void grad_scale(Grad& g) {
  if (g.needs(in::scale::x)) g.add(in::scale::x, g.builder().emit1("scale", {g.dout(out::scale::y)}, g.attrs()));
}

static void grad_add_scalar(Grad& g) {
  if (g.needs(in::add_scalar::x)) g.add(in::add_scalar::x, g.dout(out::add_scalar::y));
}

static void grad_tanh(Grad& g) {
  if (g.needs(in::tanh::x))
    g.add(in::tanh::x, g.builder().emit1("tanh_grad", {g.dout(out::tanh::y), g.out(out::tanh::y)}));
}

const OpDef op_add = {.name = "add",
                      .inputs = in::add::names,
                      .outputs = out::add::names,
                      .help = "a, b -> a + b, with in_place in the memory of a",
                      .op_class = OpClass::elementwise,
                      .infer = infer_add,
                      .place = cut<".. -> ..; .. linear">,
                      .cost = elementwise_cost<1>,
                      .grad = grad_add,
                      .may_overlay = {{out::add::y, in::add::a}, {out::add::y, in::add::b}},
                      .pointwise = true,
                      .cheap = true};

const OpDef op_mul = {.name = "mul",
                      .inputs = in::mul::names,
                      .outputs = out::mul::names,
                      .help = "a, b -> a b, element by element",
                      .op_class = OpClass::elementwise,
                      .infer = rules::binary,
                      .place = cut<".. -> ..; ..">,
                      .cost = elementwise_cost<1>,
                      .grad = grad_mul,
                      .may_overlay = {{out::mul::y, in::mul::a}, {out::mul::y, in::mul::b}},
                      .pointwise = true,
                      .cheap = true};

const OpDef op_scale = {.name = "scale",
                        .inputs = in::scale::names,
                        .outputs = out::scale::names,
                        .help = "x -> x value",
                        .op_class = OpClass::elementwise,
                        .infer = infer_with_value,
                        .place = cut<".. -> ..; .. linear">,
                        .cost = elementwise_cost<1>,
                        .grad = grad_scale,
                        .may_overlay = {{out::scale::y, in::scale::x}},
                        .pointwise = true,
                        .cheap = true};

const OpDef op_add_scalar = {.name = "add_scalar",
                             .inputs = in::add_scalar::names,
                             .outputs = out::add_scalar::names,
                             .help = "x -> x + value",
                             .op_class = OpClass::elementwise,
                             .infer = infer_with_value,
                             .place = cut<".. -> ..; ..">,
                             .cost = elementwise_cost<1>,
                             .grad = grad_add_scalar,
                             .may_overlay = {{out::add_scalar::y, in::add_scalar::x}},
                             .pointwise = true,
                             .cheap = true};

const OpDef op_tanh = {.name = "tanh",
                       .inputs = in::tanh::names,
                       .outputs = out::tanh::names,
                       .help = "x -> tanh(x)",
                       .op_class = OpClass::elementwise,
                       .infer = rules::unary,
                       .place = cut<".. -> ..; ..">,
                       .cost = elementwise_cost<1>,
                       .grad = grad_tanh,
                       .may_overlay = {{out::tanh::y, in::tanh::x}},
                       .pointwise = true,
                       .cheap = true};

const OpDef op_tanh_grad = {
    .name = "tanh_grad",
    .inputs = in::tanh_grad::names,
    .outputs = out::tanh_grad::names,
    .help = "dy, y -> dy (1 - y^2)",
    .op_class = OpClass::elementwise,
    .infer = rules::binary,
    .place = cut<".. -> ..; ..">,
    .cost = elementwise_cost<3>,
    .may_overlay = {{out::tanh_grad::dx, in::tanh_grad::dy}, {out::tanh_grad::dx, in::tanh_grad::y}},
    .pointwise = true,
    .cheap = true};

}  // namespace crest
