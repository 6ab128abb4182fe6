// The parts of the fusion pass.
#pragma once
#include "program/program.h"

namespace crest {

// Replaces chains of pointwise instructions of one phase and shape (with trailing bias gradients)
// by fused instructions.
void fuse_chains(Program& program);
// Replaces updates of all tensors of a group, and the norm over them, by the same over the group's
// memory.
void flatten_update(Program& program);

}  // namespace crest
