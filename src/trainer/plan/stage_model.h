// The model before all passes, for one pipeline stage.
#pragma once
#include "plan/compile.h"

namespace crest {

// The forward Program of a session's Program. For a pipeline stage, most layers that the pass
// pipeline_parallel would remove are missing, since building them takes most of the time of a
// compilation. The Program after that pass is the same. The recipe is resolved.
Program stage_model(const Recipe& recipe, const ProgramSpec& spec);

}  // namespace crest
