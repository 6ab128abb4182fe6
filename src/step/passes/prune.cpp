// Removes instructions whose results are unread after other passes replaced the consumers.
#include "passes/pass.h"
#include "passes/rewrite.h"

namespace crest {

void prune(Program& program, const PassContext&) {
  // Storages with several values: whether all values are read, or one of them.
  std::vector<bool> needed(program.values.size(), false), whole = needed, part = needed;
  auto need = [&](ValueId v) {
    ValueId storage = program.at(v).layout.storage;
    needed[size_t(v)] = true;
    (v == storage ? whole : part)[size_t(storage)] = true;
  };
  for (ValueId v : program.outputs) need(v);
  std::vector<Instr> kept;
  for (size_t i = program.code.size(); i-- > 0;) {
    Instr& instr = program.code[i];
    bool live = is(instr, "send");
    for (ValueId v : instr.out) {
      const Value& value = program.at(v);
      auto storage = size_t(value.layout.storage);
      live |= needed[size_t(v)] || program.values[storage].lifetime != Lifetime::micro_step;
      live |= whole[storage] || (storage == size_t(v) && part[storage]);
    }
    if (!live) continue;
    for (ValueId v : instr.in)
      if (v != no_value) need(v);
    kept.push_back(std::move(instr));
  }
  program.code.assign(std::make_move_iterator(kept.rbegin()), std::make_move_iterator(kept.rend()));
  drop_unused_values(program);
}

}  // namespace crest
