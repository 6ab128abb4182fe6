// Emits instructions into a Program: infers output types, names values, keeps the current origin and phase.
#pragma once
#include <string_view>
#include <vector>

#include "ops/op.h"
#include "program/program.h"

namespace crest {

class Builder {
 public:
  explicit Builder(Program& program) : program_(&program) {}

  Program& program() { return *program_; }
  const Value& at(ValueId id) const { return program_->at(id); }

  // A value that no instruction produces (inputs, weights, states), contiguous. The name must be new.
  ValueId declare(std::string_view name, DType dtype, const Shape& shape, Role role, Lifetime lifetime);
  // Appends an instruction; its outputs are named after the origin and the operation, made unique.
  std::vector<ValueId> emit(std::string_view op_name, std::vector<ValueId> in, Attrs attrs = {});
  // The same for the usual single output.
  ValueId emit1(std::string_view op_name, std::vector<ValueId> in, Attrs attrs = {});
  // Appends an instruction with a body; types come from the body's outputs.
  std::vector<ValueId> emit_fused(std::vector<ValueId> in, std::shared_ptr<const Program> body, Attrs attrs = {});

  // Settings of the instructions that follow.
  Origin origin;
  Phase phase = Phase::forward;
  Lane lane = Lane::compute;

 private:
  std::vector<ValueId> append(Instr instr);
  std::string unique(const std::string& base);
  Program* program_;
  std::vector<std::pair<std::string, int>> unused_;
};

// Re-runs type inference over the whole Program after a pass changed input types or attributes: dtype, shape and layout
// of every produced value follow. Throws when an instruction rejects its inputs.
void reinfer(Program& program);

}  // namespace crest
