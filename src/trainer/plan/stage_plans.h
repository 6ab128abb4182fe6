// The plans of all pipeline stages. Each rank needs memory for its own.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "plan/compile.h"

namespace crest {

// The session of each stage, by coordinate along the pipeline axis; without stages, the session
// itself.
std::vector<CompiledSession> all_stages(const CompiledSession& session, const CompileOptions& options = {});
// What a stage computes: its layers and their recomputation. Stages of equal work have Programs of
// equal size and time; the slots between the Programs may differ.
std::vector<std::string> stage_work(const Recipe& recipe, int stage);
// The stage with the most memory. Of stages with equal work, it compiles the one with most slots.
CompiledSession largest_stage(CompiledSession session, const CompileOptions& options = {});

// A value of --stages to make all stages fit. Moves layers one by one from the largest to the
// smallest stage. Empty: no cut fits, a rank has several chunks, or there is no pipeline.
std::string stages_that_fit(const CompiledSession& session, int64_t limit_bytes);

}  // namespace crest
