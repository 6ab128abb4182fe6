// Chooses, for every instruction, the first accepting kernel of the backend's ordered list.
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

// The name of the kernel for an instruction; empty if it is the reference or there is none, so
// passes may create the instruction (PassContext::kernel_for).
std::function<std::string(const Program&, const Instr&)> kernel_finder(const Recipe& recipe, const Device& device);

// The passes' context for a Program of a session
// and a device. Recipe and device must outlive it.
PassContext pass_context(const Recipe& recipe, const ProgramSpec& spec, const Device& device);

}  // namespace crest
