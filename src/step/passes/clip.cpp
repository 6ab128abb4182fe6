// Setting --clip: one global norm over all gradients. It also detects NaN and infinity, so it runs
// with clipping off too.
#include "passes/pass.h"
#include "passes/rewrite.h"

namespace crest {

void clip_gradients(Program& program, const PassContext& context) {
  if (context.kind != ProgramKind::update) return;
  Builder b(program);
  b.origin = Origin("clip");
  b.phase = Phase::update;
  std::vector<ValueId> in = {latest(program, program.find("scalars"))};
  for (ValueId g : required_gradients(program, "clip")) in.push_back(g);
  b.emit("grad_norm", in, Attrs().set("clip", context.recipe.clip));
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
