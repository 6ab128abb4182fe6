// AdamW (Loshchilov & Hutter 2019, algorithm 2) over one tensor or a flat group of tensors.
#include "ops/index.h"
#include "ops/update.h"
#include "program/place.h"

namespace crest {

static_assert(in::adamw::master == parameter_input && in::adamw::m == state_input);
static_assert(in::adamw::g == gradient_input(2) && in::adamw::w == copy_input(2));
static_assert(in::adamw::c == compensation_input(2));
static_assert(out::adamw::m == state_output && out::adamw::w == copy_output(2));

static void infer(Infer& c) {
  rules::update(c, 2, true);
  rules::beta(c, "beta1");
  rules::beta(c, "beta2");
  c.check(rules::number(c, "eps") >= 0, "attribute 'eps' must not be negative");
}

const OpDef op_adamw = {
    .name = "adamw",
    .inputs = in::adamw::names,
    .outputs = out::adamw::names,
    .help = "scalars, master, m, v, g, [w], [c] -> master, m, v, [w], [c]: one step, skipped when found_inf",
    .op_class = OpClass::optimizer,
    .infer = infer,
    .place = cut<"-, .. -> ..; ..">,
    .cost = update_cost<16, in::adamw::w>,
    .flat = true};

}  // namespace crest
