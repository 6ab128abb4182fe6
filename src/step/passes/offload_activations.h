#pragma once
#include "passes/offload.h"
#include "passes/pass.h"

namespace crest {

// Moves activations of a training micro step to host memory and back. choice.activations: some.
void offload_activations(Program& program, const PassContext& context, const OffloadChoice& choice);

}  // namespace crest
