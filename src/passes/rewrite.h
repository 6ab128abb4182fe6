// Helpers of passes that rebuild a Program's code.
#pragma once
#include "program/builder.h"

namespace crest {

// Takes the code out of a Program and lets a pass put it back instruction by instruction, with replacements.
//   Rewriter w(program);
//   for (auto& instr : w.old) if (wanted) w.replace(instr.out[0], ...w.build(instr).emit1(...)); else w.keep(instr);
//   w.finish();
class Rewriter {
 public:
  explicit Rewriter(Program& program);

  const std::vector<Instr> old;  // the code as it was
  // What stands for an old value now.
  ValueId now(ValueId v) const { return v == no_value || size_t(v) >= map_.size() ? v : map_[size_t(v)]; }
  std::vector<ValueId> now(const std::vector<ValueId>& v) const;
  void replace(ValueId old_value, ValueId by);
  // The builder with origin, phase and stream of an instruction.
  Builder& build(const Instr& like);
  // Puts an old instruction back with its inputs replaced.
  void keep(Instr instr);
  // Replaces outputs and drops values that nothing refers to any more.
  void finish();

 private:
  Program& program_;
  Builder builder_;
  std::vector<ValueId> map_;
};

// Drops values that no instruction, list or storage refers to (inputs, weights, states and caches stay).
void drop_unused_values(Program& program);
// The newest version of what lives in the storage of a value (after updates in place).
ValueId latest(const Program& program, ValueId v);
// Factor on the loss and its gradient (attribute `scale` of the loss instructions).
void scale_loss(Program& program, double factor);
bool is(const Instr& instr, std::string_view op_name);
// Index of a parameter's gradient values by parameter, no_value where there is none.
std::vector<ValueId> parameter_gradients(const Program& program);
// The same for a pass that cannot do without: a usage error when --disable-pass removed what makes them.
std::vector<ValueId> required_gradients(const Program& program, const char* pass);

}  // namespace crest
