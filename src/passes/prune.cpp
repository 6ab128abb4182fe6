// Removes instructions whose results are not read (left over when other passes replaced their
// consumers).
#include "passes/pass.h"
#include "passes/rewrite.h"

namespace crest {

void prune(Program& program, const PassContext&) {
  std::vector<bool> needed(program.values.size(), false);
  for (ValueId v : program.outputs) needed[size_t(v)] = true;
  std::vector<Instr> kept;
  for (size_t i = program.code.size(); i-- > 0;) {
    Instr& instr = program.code[i];
    bool live = false;
    for (ValueId v : instr.out) {
      const Value& value = program.at(v);
      live |= needed[size_t(v)] || program.at(value.layout.storage).lifetime != Lifetime::micro_step;
    }
    if (!live) continue;
    for (ValueId v : instr.in)
      if (v != no_value) needed[size_t(v)] = true;
    kept.push_back(std::move(instr));
  }
  program.code.assign(std::make_move_iterator(kept.rbegin()), std::make_move_iterator(kept.rend()));
  drop_unused_values(program);
}

}  // namespace crest
