// Lion (Chen et al. 2023, "Symbolic Discovery of Optimization Algorithms", algorithm 2).
#include "ops/index.h"
#include "ops/update.h"

namespace crest {

static void infer(Infer& c) {
  rules::update(c, 1);
  rules::beta(c, "beta1");
  rules::beta(c, "beta2");
}

const OpDef op_lion = {.name = "lion",
                       .help = "scalars, master, m, g, [w] -> master, m, [w]: one step, skipped when found_inf",
                       .op_class = OpClass::optimizer,
                       .infer = infer,
                       .cost = update_cost<10, copy_input(1)>,
                       .flat = true};

}  // namespace crest
