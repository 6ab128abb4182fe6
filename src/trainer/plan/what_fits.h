// What to change where a plan does not fit.
#pragma once
#include <string>
#include <vector>

#include "plan/compile.h"

namespace crest {

// Flags with which the Programs of the session fit, each with the largest micro batch up to the
// session's: "--recompute full --batch 4". Only settings that these Programs depend on, and only
// what was planned. A shorter sequence comes where nothing else helps.
std::vector<std::string> what_fits(const CompiledSession& session, int64_t limit_bytes);
// Throws does_not_fit with the memory by category and what would fit.
void check_fits(const CompiledSession& session, int64_t limit_bytes);

}  // namespace crest
