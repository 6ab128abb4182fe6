// Setting --clip: one global norm over all gradients. The norm also detects NaN and infinity, so
// the pass runs without clipping, too. Each rank squares its part of a cut gradient, and the ranks
// sum the squares.
#include <map>

#include "passes/pass.h"
#include "passes/rewrite.h"

namespace crest {

static Axes axes_of_cuts(const Value& v) {
  Axes axes;
  for (Axis axis : axes_outermost_first)
    if (v.placement[size_t(axis)].cut()) axes = axes | axis;
  return axes;
}

void clip_gradients(Program& program, const PassContext& context) {
  if (context.kind != ProgramKind::update) return;
  Builder b(program);
  b.origin = Origin("clip");
  b.phase = Phase::update;
  std::map<Axes, std::vector<ValueId>> gradients;  // by the axes of their cuts
  for (ValueId g : required_gradients(program, "clip"))
    if (g != no_value) gradients[axes_of_cuts(program.at(g))].push_back(g);
  std::vector<ValueId> in = {latest(program, program.find("scalars"))};
  Attrs attrs = Attrs().set("clip", context.recipe.clip);
  // Each pipeline stage has the gradients of its own layers.
  const Axes stages = context.recipe.layout().size(Axis::pipeline) > 1 ? Axes(Axis::pipeline) : Axes();
  if (gradients.size() == 1 && gradients.begin()->first.empty() && stages.empty()) {
    in.insert(in.end(), gradients.begin()->second.begin(), gradients.begin()->second.end());
  } else {
    attrs.set("squares", 1);
    for (auto& [cuts, list] : gradients) {
      const Axes axes = cuts | stages;
      ValueId sum = b.emit1("square_sum", list, stages.empty() ? Attrs() : Attrs().set("axes", stages.text()));
      if (!axes.empty()) sum = b.emit1("all_reduce", {sum}, Attrs().set("mean", 0).set("axes", axes.text()));
      in.push_back(sum);
    }
  }
  b.emit("grad_norm", in, attrs);
}

const std::vector<Setting>& clip_settings() {
  static const std::vector<Setting> rows = {
      setting<&Recipe::clip>({.name = "clip",
                              .group = "Optimizer",
                              .help = "maximum global norm of the gradients; 0: off",
                              .min = 0,
                              .effects = {{Effect::work, Effect::anywhere, {}, "update"}}})};
  return rows;
}

}  // namespace crest
