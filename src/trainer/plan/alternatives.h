// Recipes near a given one with lower memory, planned but not run.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "plan/compile.h"

namespace crest {

struct Alternative {
  std::string flags;  // in addition to the recipe's: "--recompute full"
  int64_t planned_bytes = 0;
  double flops_per_token = 0;  // executed
};

// Plans one change at a time. Returns the changes with less memory than the session, smallest
// first. compile: creates a recipe's session (the caller chooses its Programs).
std::vector<Alternative> memory_alternatives(const CompiledSession& session,
                                             const std::function<CompiledSession(const Recipe&)>& compile,
                                             const std::function<double(const CompiledSession&)>& flops_per_token);

}  // namespace crest
