// The parts of a profile known before a run: rows and costs, floors, memory.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <set>
#include <string>
#include <vector>

#include "plan/compile.h"
#include "profile/profile.h"

namespace crest {

// Fills calls, instrs (without times) and memory (without measured values) for a run of these
// Programs (by index).
void describe_session(Profile& profile, const CompiledSession& session, const std::vector<int>& calls);
// Names of the rates in the rows' floors.
std::set<std::string> rates_needed(const Profile& profile);
// Computes floor_ms of every row from profile.rates.
void set_floors(Profile& profile);

// RunRecord's document "program": {calls: [Program of each call], instrs: [...]}. Each instruction
// is a row with the keys of profile rows (profile/profile.h) except times, so measurements without
// a profile can be matched, too. calls: index of the Program of each call of the phase, in order.
nlohmann::ordered_json program_document(const CompiledSession& session, const std::vector<int>& calls);

}  // namespace crest
