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
// The stage with the most memory.
CompiledSession largest_stage(CompiledSession session, const CompileOptions& options = {});

// A value of --stages to make all stages fit. Moves layers one by one from the largest to the
// smallest stage. Empty: no cut fits, a rank has several chunks, or there is no pipeline.
std::string stages_that_fit(const CompiledSession& session, int64_t limit_bytes);

}  // namespace crest
