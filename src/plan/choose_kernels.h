// For every instruction the first kernel of the backend's ordered list that takes it.
#pragma once
#include <functional>

#include "plan/compile.h"

namespace crest {

// Honours recipe.kernels (--kernel OP=PATTERN). Throws an error with every kernel's reason when none takes an
// instruction.
void choose_kernels(CompiledProgram& program, const Recipe& recipe, const Device& device);

// The name of the kernel that would be chosen for an instruction, empty where that is the reference or none, so that
// passes may make one (PassContext::kernel_for).
std::function<std::string(const Program&, const Instr&)> kernel_finder(const Recipe& recipe, const Device& device);

}  // namespace crest
