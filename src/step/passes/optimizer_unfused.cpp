// AdamW as an eager framework runs it: one pass over memory per instruction, like PyTorch's
// AdamW(foreach=False, fused=False). Results equal adamw's up to rounding.
#include "passes/optimizers.h"

namespace crest {

static void emit_adamw_unfused(Update& u) {
  const Recipe& r = u.recipe;
  ValueId p = u.master(), m = u.state("m"), v = u.state("v");
  auto axpby = [&](std::vector<ValueId> in, Attrs attrs) {
    in.insert(in.begin(), u.scalars);
    return u.b.emit1("axpby", in, attrs);
  };
  ValueId g = axpby({u.gradient}, Attrs().set("a", 1.0).set("a_by", "grad_factor"));
  if (u.decay() > 0) p = axpby({p}, Attrs().set("a", 1.0).set("decay", u.decay() * u.param.lr_factor));
  m = axpby({m, g}, Attrs().set("a", r.beta1).set("b", 1 - r.beta1));
  v = axpby({v}, Attrs().set("a", r.beta2));
  v = axpby({v, g, g}, Attrs().set("a", 1.0).set("b", 1 - r.beta2));
  ValueId root = u.b.emit1("sqrt", {v});
  root = axpby({root}, Attrs().set("a", 1.0).set("a_by", "root_correction").set("beta", r.beta2));
  root = axpby({root}, Attrs().set("a", 1.0).set("c", r.eps));
  Attrs step =
      Attrs().set("a", 1.0).set("b", -u.param.lr_factor).set("b_by", "step_size").set("beta", r.beta1).set("divide", 1);
  p = axpby({p, m, root}, step);
  if (u.copy != no_value) axpby({u.copy, p}, Attrs().set("a", 0.0).set("b", 1.0).set("weights", 1));
}

std::vector<Optimizer> unfused_optimizers() {
  return {{"adamw-unfused", emit_adamw_unfused, {{"m"}, {"v"}}, Master::whole}};
}

}  // namespace crest
