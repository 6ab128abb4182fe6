// Ends a train Program after its forward half (Program train.forward, phase forward-saved). Inputs
// of the missing backward half stay alive to the end. The pass runs after fusion, so the
// instructions are the training step's. With a chunked loss, the backward half of a chunk normally
// runs before the next chunk. Here it does not run, so the logits of all chunks stay (or their
// gradients, if they overwrite the logits).
#include "passes/pass.h"
#include "passes/rewrite.h"

namespace crest {

void keep_forward_half(Program& program, const PassContext& context) {
  if (!context.forward_only) return;
  std::vector<bool> forward(program.values.size(), true), kept(program.values.size(), false);
  for (auto& instr : program.code)
    if (instr.phase != Phase::forward)
      for (ValueId v : instr.out) forward[size_t(v)] = false;
  std::vector<ValueId> outputs;
  auto keep = [&](ValueId v) {
    if (v == no_value || !forward[size_t(v)] || kept[size_t(v)]) return;
    if (program.at(program.at(v).layout.storage).lifetime != Lifetime::micro_step) return;
    kept[size_t(v)] = true;
    outputs.push_back(v);
  };
  for (ValueId v : program.outputs)
    if (program.at(v).role == Role::output) keep(v);
  std::vector<Instr> code;
  for (auto& instr : program.code) {
    if (instr.phase == Phase::forward) {
      code.push_back(std::move(instr));
      continue;
    }
    for (ValueId v : instr.in) keep(v);
  }
  program.code = std::move(code);
  program.outputs = std::move(outputs);
  // No instruction writes gradients.
  for (auto& value : program.values)
    if (value.role == Role::gradient) value.lifetime = Lifetime::micro_step;
  drop_unused_values(program);
}

}  // namespace crest
