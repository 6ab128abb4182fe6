// AdamW (Loshchilov & Hutter 2019, algorithm 2) over one tensor or a flat group of tensors.
#include "ops/index.h"
#include "ops/update.h"

namespace crest {

static void infer(Infer& c) {
  rules::update(c, 2, true);
  rules::beta(c, "beta1");
  rules::beta(c, "beta2");
  c.check(rules::number(c, "eps") >= 0, "attribute 'eps' must not be negative");
}

const OpDef op_adamw = {
    .name = "adamw",
    .help = "scalars, master, m, v, g, [w], [c] -> master, m, v, [w], [c]: one step, skipped when found_inf",
    .op_class = OpClass::optimizer,
    .infer = infer,
    .cost = update_cost<16, copy_input(2)>,
    .flat = true};

}  // namespace crest
