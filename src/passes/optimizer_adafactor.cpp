// Adafactor (Shazeer & Stern 2018) without momentum: a matrix [M,N] has M + N numbers of state.
// Constants are those of its section 9: decay rate 0.8, eps 1e-30, clipping at 1. The learning rate
// is the schedule's, not relative to the parameter. Vectors get AdamW.
#include "passes/optimizers.h"

namespace crest {

static void emit_adafactor(Update& u) {
  if (!u.matrix()) return emit_adamw(u);
  ValueId master = u.master();
  ValueId row = u.state("row", DType::f32, {u.shape()[0]}), col = u.state("col", DType::f32, {u.shape()[1]});
  std::vector<ValueId> moments =
      u.b.emit("factored_moments", {u.scalars, u.gradient, row, col}, Attrs().set("decay_rate", 0.8).set("eps", 1e-30));
  u.b.emit("factored_update", {u.scalars, master, u.gradient, moments[0], moments[1], u.copy},
           Attrs().set("clip", 1.0).set("weight_decay", u.decay()));
}

std::vector<Optimizer> adafactor_optimizers() { return {{"adafactor", emit_adafactor}}; }

}  // namespace crest
