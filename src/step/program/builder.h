// Appends instructions to a Program: infers output types, names values, and keeps the current
// origin and phase.
#pragma once
#include <string_view>
#include <vector>

#include "program/names.h"
#include "program/op.h"
#include "program/program.h"

namespace crest {

class Builder {
 public:
  explicit Builder(Program& program);

  Program& program() { return *program_; }
  const Value& at(ValueId id) const { return program_->at(id); }

  // A contiguous value without a producer in the Program (inputs, weights, states). The name must
  // be new.
  ValueId declare(std::string_view name, DType dtype, const Shape& shape, Role role, Lifetime lifetime);
  // Appends an instruction. Its outputs are named after the origin and the operation; names are
  // made unique.
  std::vector<ValueId> emit(std::string_view op_name, std::vector<ValueId> in, Attrs attrs = {});
  // The same, for one output.
  ValueId emit1(std::string_view op_name, std::vector<ValueId> in, Attrs attrs = {});
  // Appends a complete instruction (a clone, a fused instruction). Its outputs do not exist yet:
  // append() infers and names them.
  std::vector<ValueId> append(Instr instr);

  // Settings for the instructions of emit().
  Origin origin;
  Phase phase = Phase::forward;
  Stream stream = Stream::compute;

 private:
  Names& names();
  Program* program_;
  Names names_;
  bool named_ = false;  // names_ holds the Program's names; most passes leave most Programs unchanged
};

// Repeats type inference over the whole Program after a pass changed input types or attributes:
// dtype, shape and layout of every produced value follow. Throws if an instruction rejects its
// inputs.
void reinfer(Program& program);
// The same for one instruction.
void reinfer(Program& program, const Instr& instr);
// The layout of an inferred output in this Program (views and in-place outputs share their input's
// storage).
Layout layout_of(const Program& program, const Instr& instr, const Infer::Out& out, ValueId self);

}  // namespace crest
