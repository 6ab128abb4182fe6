// The FLOPs of a training step.
#pragma once
#include "plan/compile.h"

namespace crest {

// FLOPs of all instructions that one rank runs in an optimizer step, padding and recompute
// included.
double executed_flops(const CompiledSession& session);

}  // namespace crest
