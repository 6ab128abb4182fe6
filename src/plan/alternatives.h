// What would need less memory: recipes near a given one, planned but not run.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "plan/compile.h"

namespace crest {

struct Alternative {
  std::string flags;  // over the recipe's own: "--recompute full"
  int64_t planned_bytes = 0;
  double flops_per_token = 0;  // executed
};

// Plans one change at a time and returns those that need less than the session, least first. compile: makes the session
// of a recipe (its Programs are the caller's matter).
std::vector<Alternative> memory_alternatives(const CompiledSession& session,
                                             const std::function<CompiledSession(const Recipe&)>& compile,
                                             const std::function<double(const CompiledSession&)>& flops_per_token);

}  // namespace crest
