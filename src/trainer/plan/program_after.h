// A Program in the middle of the passes.
#pragma once
#include <string>

#include "plan/compile.h"

namespace crest {

// The Program right after a pass, without kernels or addresses; "model": before the first pass. The
// recipe must be resolved. Throws a usage error for an unknown pass.
Program program_after(const Recipe& recipe, const Device& device, const ProgramSpec& spec, const std::string& pass);

}  // namespace crest
