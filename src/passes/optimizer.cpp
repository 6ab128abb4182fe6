// Lever --optimizer: AdamW (Loshchilov & Hutter 2019), decay on matrices only. Weights in half precision get an fp32
// master copy as state.
#include "passes/pass.h"
#include "passes/rewrite.h"

namespace crest {

void optimizer(Program& program, const PassContext& context) {
  if (context.kind != ProgramKind::update) return;
  const Recipe& r = context.recipe;
  Builder b(program);
  b.phase = Phase::update;
  ValueId scalars = latest(program, program.find("scalars"));
  std::vector<ValueId> gradients = parameter_gradients(program);
  for (size_t q = 0; q < program.params.size(); ++q) {
    const Param& p = program.params[q];
    Shape shape = program.at(p.value).shape;
    auto state = [&](const char* suffix) {
      return b.declare(p.name + suffix, DType::f32, shape, Role::state, Lifetime::persistent);
    };
    bool half = is_half(program.at(p.value).dtype);
    ValueId master = half ? state(".master") : p.value;
    b.origin = Origin(p.name.substr(0, p.name.rfind('.')));
    Attrs a;
    a.set("beta1", r.beta1).set("beta2", r.beta2).set("eps", r.eps).set("weight_decay", p.decay ? r.weight_decay : 0.0);
    ValueId m = state(".m"), v = state(".v");
    b.emit("adamw", {scalars, master, m, v, gradients[q], half ? p.value : no_value}, a);
  }
  b.origin = Origin("step");
  Attrs a;
  a.set("dynamic", program.properties.has("loss_scale"))
      .set("growth_interval", 2000)
      .set("min_scale", 1.0)
      .set("max_scale", 0x1p24);
  b.emit("finish_step", {scalars}, a);
}

}  // namespace crest
