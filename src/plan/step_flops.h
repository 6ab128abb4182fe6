// What a training step computes.
#pragma once
#include "plan/compile.h"

namespace crest {

// FLOPs of all instructions that one rank runs for an optimizer step, padding and recompute included.
double executed_flops(const CompiledSession& session);

}  // namespace crest
