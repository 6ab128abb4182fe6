// Changes to make a plan fit.
#pragma once
#include <string>
#include <vector>

#include "plan/compile.h"

namespace crest {

// Flags to make the session's Programs fit, each with the largest possible micro batch:
// "--recompute full --batch 4". Only settings with an effect on these Programs, and only planned
// combinations. A shorter sequence is the last resort.
std::vector<std::string> what_fits(const CompiledSession& session, int64_t limit_bytes);
// Throws does_not_fit with memory by category and fitting flags.
void check_fits(const CompiledSession& session, int64_t limit_bytes);

}  // namespace crest
