// A compiled session as JSON: its memory plan and its instructions with what they cost.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "plan/compile.h"

namespace crest {

// The largest blocks of the Program that needs the largest transient arena.
std::vector<const Block*> largest_blocks(const CompiledSession& session, int rows);

// planned_bytes, persistent_bytes, transient_bytes, ranks, by_category, peak, largest_blocks (docs/contract.md, plan).
nlohmann::ordered_json memory_to_json(const CompiledSession& session, int blocks);
// [{name, instructions, transient_bytes}]
nlohmann::ordered_json programs_to_json(const CompiledSession& session);

// RunRecord's document "plan": {model, memory, programs}.
nlohmann::ordered_json plan_document(const CompiledSession& session);
// RunRecord's document "program": {calls: [Program of each call], instrs: [...]}. A row an instruction with the keys of
// the profile's rows (measure/profile.h) but for times, so that measurements without a profile can be joined, too.
// calls: index of the Program of each call of the measured phase, in order.
nlohmann::ordered_json program_document(const CompiledSession& session, const std::vector<int>& calls);

}  // namespace crest
