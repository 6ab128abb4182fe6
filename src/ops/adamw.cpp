// AdamW (Loshchilov & Hutter 2019, algorithm 2) over one tensor or a flat group of tensors.
#include "ops/index.h"
#include "ops/rules.h"

namespace crest {

static void infer(Infer& c) {
  rules::inputs(c, 5, 6);
  rules::contiguous(c);
  rules::scalars(c, 0);
  c.check(c.in(1).dtype == DType::f32 || c.in(1).dtype == DType::f64, "master weights and moments must be f32");
  for (size_t i : {2, 3}) c.same_dtype(i, 1);
  for (size_t i = 2; i < c.inputs(); ++i)
    if (c.has(i)) {
      c.same_shape(i, 1);
      rules::floating(c, i);
    }
  for (const char* beta : {"beta1", "beta2"}) {
    double b = rules::number(c, beta);
    c.check(b >= 0 && b < 1, "attributes 'beta1' and 'beta2' must lie in [0, 1)");
  }
  c.check(rules::number(c, "eps") >= 0, "attribute 'eps' must not be negative");
  rules::number(c, "weight_decay");
  for (size_t i : {1, 2, 3, 5})
    if (c.has(i)) c.out_in_place(i);
}

const OpDef op_adamw = {.name = "adamw",
                        .help = "scalars, master, m, v, g, [w] -> master, m, v, [w]: one step, skipped when found_inf",
                        .op_class = OpClass::optimizer,
                        .infer = infer,
                        .cost = elementwise_cost<16>};

}  // namespace crest
