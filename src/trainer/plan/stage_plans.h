// The plans of all pipeline stages. Each rank needs memory for its own.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "plan/compile.h"

namespace crest {

// What a stage computes: its layers and their recomputation. Stages of equal work have Programs of
// equal size and time; the slots between the Programs may differ.
std::vector<std::string> stage_work(const Recipe& recipe, int stage);
// The session, then for each other work the stage with most slots. Without stages, the session
// alone.
std::vector<CompiledSession> distinct_stages(CompiledSession session, const CompileOptions& options = {});
// The bytes of a stage with the same work as the session's.
int64_t planned_bytes(const CompiledSession& session, int stage);
int64_t limited_bytes(const CompiledSession& session, int stage);
// The stage with the most memory.
CompiledSession largest_stage(CompiledSession session, const CompileOptions& options = {});

// A value of --stages to make all stages fit. Moves layers one by one from the largest to the
// smallest stage. Empty: no cut fits, a rank has several chunks, or there is no pipeline.
std::string stages_that_fit(const CompiledSession& session, int64_t limit_bytes);

}  // namespace crest
