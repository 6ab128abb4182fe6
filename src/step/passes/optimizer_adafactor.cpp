// Adafactor (Shazeer & Stern 2018): a matrix [M,N] has M + N numbers of state, and with momentum
// --beta1 one more for each element. Constants follow section 9: decay rate 0.8, eps 1e-30,
// clipping at 1. The learning rate comes from the schedule and is not relative to the parameter.
// Vectors use AdamW.
#include "passes/optimizers.h"

namespace crest {

// A step of `target`: the weights, or their first moment.
static ValueId emit_step(Update& u, ValueId target, ValueId copy, const Attrs& attrs) {
  std::vector<ValueId> moments = u.b.emit("factored_moments", {u.scalars, u.gradient, u.state("row"), u.state("col")},
                                          Attrs().set("decay_rate", 0.8).set("eps", 1e-30));
  return u.b.emit("factored_update", {u.scalars, target, u.gradient, moments[0], moments[1], copy},
                  Attrs(attrs).set("clip", 1.0))[0];
}

static void emit_adafactor(Update& u) { emit_step(u, u.master(), u.copy, u.attrs()); }

static void emit_adafactor_momentum(Update& u) {
  if (u.recipe.beta1 == 0) return emit_adafactor(u);
  ValueId m = emit_step(u, u.state("m"), no_value, Attrs().set("weight_decay", 0.0).set("momentum", u.recipe.beta1));
  const double rate = u.param.lr_factor;
  Attrs step = Attrs().set("a", 1.0).set("decay", u.decay() * rate).set("b", -rate).set("b_by", "lr");
  ValueId master = u.b.emit1("axpby", {u.scalars, u.master(), m}, step);
  if (u.copy != no_value)
    u.b.emit1("axpby", {u.scalars, u.copy, master}, Attrs().set("a", 0.0).set("b", 1.0).set("weights", 1));
}

std::vector<Optimizer> adafactor_optimizers() {
  const StateRow row = {"row", Per::row}, column = {"col", Per::column};
  const StateRow m = {.name = "m", .momentum = true};
  auto matrices = [](const Param& p) { return p.shape.rank() == 2; };
  return {{"adafactor", emit_adafactor, {row, column}, Master::whole, matrices},
          {"adafactor-momentum", emit_adafactor_momentum, {m, row, column}, Master::whole, matrices}};
}

}  // namespace crest
