// Chooses, for every instruction, the first kernel of the backend's ordered list that accepts it.
#pragma once
#include <functional>

#include "plan/compile.h"

namespace crest {

// Honors recipe.kernels (--kernel OP=PATTERN). If no kernel accepts an instruction, throws an error
// with the reason of each kernel.
void choose_kernels(CompiledProgram& program, const Recipe& recipe, const Device& device);

// Whether a kernel other than a reference accepts an instruction, so that passes may create it
// (PassContext::has_kernel).
std::function<bool(const Program&, const Instr&)> kernel_test(const Recipe& recipe, const Device& device);

}  // namespace crest
