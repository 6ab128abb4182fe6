// Levers ranks and data_parallel: every rank runs its share of the global batch; gradients and loss
// are summed after the last micro step. The loss scale includes 1/ranks, so a sum gives the mean
// over the global batch.
#include "passes/pass.h"
#include "passes/rewrite.h"

namespace crest {

void data_parallel(Program& program, const PassContext& context) {
  int ranks = context.recipe.world_size();
  if (ranks <= 1 || program.outputs.empty()) return;
  if (context.kind != ProgramKind::train && context.kind != ProgramKind::validation) return;
  scale_loss(program, 1.0 / ranks);
  if (!context.last) return;
  Builder b(program);
  b.origin = Origin("data_parallel");
  b.phase = context.kind == ProgramKind::train ? Phase::backward : Phase::forward;
  std::vector<std::string> names;
  for (ValueId v : program.outputs) names.push_back(program.at(v).name);
  std::vector<ValueId> reduced = b.emit("all_reduce", program.outputs, Attrs().set("mean", 0));
  for (size_t i = 0; i < reduced.size(); ++i) {
    program.at(program.outputs[i]).name = names[i] + ".local";
    program.at(reduced[i]).name = names[i];
  }
  program.outputs = reduced;
}

const std::vector<Setting>& data_parallel_settings() {
  static const std::vector<Effect> effects = {{Effect::communication},
                                              {Effect::all, Effect::amount, {}, nullptr, true}};
  static const std::vector<Setting> rows = {
      setting<&Recipe::ranks>({.name = "ranks",
                               .group = "Model and batch",
                               .help = "processes that train together, one rank each (train, bench)",
                               .least = 1,
                               .most = 4096,
                               .common = true,
                               .resume = OnResume::accepts,
                               .effects = effects}),
      setting<&Recipe::data_parallel>({.name = "data-parallel",
                                       .group = "Model and batch",
                                       .help = "virtual ranks: threads of one process, to test data parallelism",
                                       .least = 1,
                                       .most = 64,
                                       .resume = OnResume::accepts,
                                       .effects = effects})};
  return rows;
}

}  // namespace crest
