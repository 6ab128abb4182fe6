// Chooses kernels: the first one in the backend's list to accept an instruction.
#pragma once
#include <functional>

#include "core/error.h"
#include "plan/compile.h"

namespace crest {

struct NoKernel : Error {
  using Error::Error;
};

// Honors recipe.kernels (--kernel OP=PATTERN). If no kernel accepts an instruction, throws NoKernel
// with the reason of each kernel.
void choose_kernels(CompiledProgram& program, const Recipe& recipe, const Device& device);

// The kernel for an instruction, by name. Empty for the reference or no kernel. Passes use it to
// decide whether to create the instruction (PassContext::kernel_for).
std::function<std::string(const Program&, const Instr&)> kernel_finder(const Recipe& recipe, const Device& device);

// The passes' context for a Program of a session on a device. Recipe and device must outlive it.
PassContext pass_context(const Recipe& recipe, const ProgramSpec& spec, const Device& device);

}  // namespace crest
