// The parts of a profile that a compiled session knows before it runs: rows and costs, floors, memory.
#pragma once
#include <set>
#include <string>
#include <vector>

#include "measure/profile.h"
#include "plan/compile.h"

namespace crest {

// Fills calls, instrs (without times) and memory (without what was measured) of a run that calls these
// Programs (by index).
void describe_session(Profile& profile, const CompiledSession& session, const std::vector<int>& calls);
// Names of the rates that the rows' floors need.
std::set<std::string> rates_needed(const Profile& profile);
// floor_ms of every row from profile.rates.
void set_floors(Profile& profile);

}  // namespace crest
