// Helpers for passes that rebuild a Program's code.
#pragma once
#include "program/builder.h"

namespace crest {

// Takes the code out of a Program. The pass puts it back instruction by instruction, with changes.
//   Rewriter w(program);
//   for (auto& instr : w.old) if (wanted) w.replace(instr.out[0], ...w.build(instr).emit1(...)); else w.keep(instr);
//   w.finish();
class Rewriter {
 public:
  explicit Rewriter(Program& program);

  const std::vector<Instr> old;  // the original code
  // The replacement of an old value, or the value itself.
  ValueId now(ValueId v) const { return v == no_value || size_t(v) >= map_.size() ? v : map_[size_t(v)]; }
  std::vector<ValueId> now(const std::vector<ValueId>& v) const;
  void replace(ValueId old_value, ValueId by);
  // The builder, set to this instruction's origin, phase and stream.
  Builder& build(const Instr& like);
  // Puts back an old instruction with replaced inputs.
  void keep(Instr instr);
  // Replaces outputs and drops unused values.
  void finish();

 private:
  Program& program_;
  Builder builder_;
  std::vector<ValueId> map_;
};

// Drops values without a use in an instruction, a list or a storage. Inputs, weights, states and
// caches stay.
void drop_unused_values(Program& program);
// The newest version of the value in its storage (after in-place updates).
ValueId latest(const Program& program, ValueId v);
// Scales the loss and its gradient (attribute `scale` of the loss instructions).
void scale_loss(Program& program, double factor);
bool is(const Instr& instr, std::string_view op_name);
// Each parameter's gradient, by parameter index; no_value: none.
std::vector<ValueId> parameter_gradients(const Program& program);
// For passes that need gradients: a usage error if --disable-pass removed their pass.
std::vector<ValueId> required_gradients(const Program& program, const char* pass);

}  // namespace crest
