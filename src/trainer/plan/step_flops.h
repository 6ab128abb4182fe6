// The FLOPs of a training step.
#pragma once
#include <string>

#include "plan/compile.h"

namespace crest {

// FLOPs of all instructions that one rank runs in an optimizer step, padding and recompute
// included.
double executed_flops(const CompiledSession& session);
// What ModelConfig::flops_per_token counts, or a third of it for a forward pass; printed with the
// figure.
std::string palm_convention(const Recipe& recipe, bool forward);

}  // namespace crest
