// Chooses, for every instruction, the first kernel of the backend's ordered list that accepts it.
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

// The name of the kernel that would be chosen for an instruction; empty if that is the reference or
// there is none, so that passes may create it (PassContext::kernel_for).
std::function<std::string(const Program&, const Instr&)> kernel_finder(const Recipe& recipe, const Device& device);

// What the passes know when they make a Program of a session for a device. Recipe and device must
// outlive it.
PassContext pass_context(const Recipe& recipe, const ProgramSpec& spec, const Device& device);

}  // namespace crest
