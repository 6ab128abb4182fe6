// SGD with momentum (Sutskever et al. 2013, in PyTorch's form) and decoupled weight decay (Loshchilov & Hutter 2019,
// algorithm 1).
#include "ops/index.h"
#include "ops/update.h"

namespace crest {

static void infer(Infer& c) {
  rules::update(c, 1);
  rules::beta(c, "momentum");
}

const OpDef op_sgd = {.name = "sgd",
                      .help = "scalars, master, m, g, [w] -> master, m, [w]: one step, skipped when found_inf",
                      .op_class = OpClass::optimizer,
                      .infer = infer,
                      .cost = update_cost<6, copy_input(1)>,
                      .flat = true};

}  // namespace crest
