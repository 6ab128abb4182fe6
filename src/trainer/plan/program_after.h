// A Program in the middle of the passes.
#pragma once
#include <string>

#include "plan/compile.h"

namespace crest {

// The Program right after a pass, without kernels or addresses. "model": before the first pass. The
// recipe must be resolved. Throws a usage error for an unknown pass.
Program program_after(const Recipe& recipe, const Device& device, const ProgramSpec& spec, const std::string& pass);

// The session's Program as compiled for another pipeline stage.
Program of_stage(const CompiledSession& session, const CompiledProgram& like, int stage);
// Parameters of all stages, in model order.
std::vector<Param> model_parameters(const CompiledSession& session);

}  // namespace crest
