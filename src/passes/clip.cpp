// Lever --clip: one global norm over all gradients; it also detects NaN and infinity, so it runs with clipping off too.
#include "passes/pass.h"
#include "passes/rewrite.h"

namespace crest {

void clip_gradients(Program& program, const PassContext& context) {
  if (context.kind != ProgramKind::update) return;
  Builder b(program);
  b.origin = Origin("clip");
  b.phase = Phase::update;
  std::vector<ValueId> in = {latest(program, program.find("scalars"))};
  for (ValueId g : parameter_gradients(program)) in.push_back(g);
  b.emit("grad_norm", in, Attrs().set("clip", context.recipe.clip));
}

}  // namespace crest
