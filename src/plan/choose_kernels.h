// For every instruction the first kernel of the backend's ordered list that takes it.
#pragma once
#include <functional>

#include "plan/compile.h"

namespace crest {

// Honours recipe.kernels (--kernel OP=PATTERN). Throws an error with every kernel's reason when none takes an
// instruction.
void choose_kernels(CompiledProgram& program, const Recipe& recipe, const Device& device);

// Whether a kernel that is no reference takes an instruction, so that passes may make one (PassContext::has_kernel).
std::function<bool(const Program&, const Instr&)> kernel_test(const Recipe& recipe, const Device& device);

}  // namespace crest
