// Changes to a plan that does not fit.
#pragma once
#include <string>
#include <vector>

#include "plan/compile.h"

namespace crest {

// Flags that make the Programs of the session fit, each with the largest micro batch up to the
// session's: "--recompute full --batch 4". Only settings with an effect on these Programs, and only
// planned combinations. A shorter sequence comes if nothing else helps.
std::vector<std::string> what_fits(const CompiledSession& session, int64_t limit_bytes);
// Throws does_not_fit with the memory by category and the flags that fit.
void check_fits(const CompiledSession& session, int64_t limit_bytes);

}  // namespace crest
