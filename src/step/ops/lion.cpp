// Lion (Chen et al. 2023, "Symbolic Discovery of Optimization Algorithms", algorithm 2).
#include "ops/index.h"
#include "ops/update.h"
#include "program/place.h"

namespace crest {

static_assert(in::lion::master == parameter_input && in::lion::m == state_input);
static_assert(in::lion::g == gradient_input(1) && in::lion::w == copy_input(1));
static_assert(out::lion::m == state_output && out::lion::w == copy_output(1));

static void infer(Infer& c) {
  rules::update(c, 1);
  rules::beta(c, "beta1");
  rules::beta(c, "beta2");
}

const OpDef op_lion = {.name = "lion",
                       .inputs = in::lion::names,
                       .outputs = out::lion::names,
                       .help = "scalars, master, m, g, [w] -> master, m, [w]: one step, skipped when found_inf",
                       .op_class = OpClass::optimizer,
                       .infer = infer,
                       .place = cut<"-, .. -> ..; ..">,
                       .cost = update_cost<10, in::lion::w>,
                       .flat = true};

}  // namespace crest
