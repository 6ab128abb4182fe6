// SGD with momentum (Sutskever et al. 2013, in PyTorch's form) and decoupled weight decay
// (Loshchilov & Hutter 2019, algorithm 1).
#include "ops/index.h"
#include "ops/update.h"
#include "program/place.h"

namespace crest {

static_assert(in::sgd::master == parameter_input && in::sgd::m == state_input);
static_assert(in::sgd::g == gradient_input(1) && in::sgd::w == copy_input(1));
static_assert(out::sgd::m == state_output && out::sgd::w == copy_output(1));

static void infer(Infer& c) {
  rules::update(c, 1);
  rules::beta(c, "momentum");
}

const OpDef op_sgd = {.name = "sgd",
                      .inputs = in::sgd::names,
                      .outputs = out::sgd::names,
                      .help = "scalars, master, m, g, [w] -> master, m, [w]: one step, skipped when found_inf",
                      .op_class = OpClass::optimizer,
                      .infer = infer,
                      .place = cut<"-, .. -> ..; ..">,
                      .cost = update_cost<6, in::sgd::w>,
                      .flat = true};

}  // namespace crest
