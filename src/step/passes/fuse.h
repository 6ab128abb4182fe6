// The parts of the fusion pass.
#pragma once
#include "program/program.h"

namespace crest {

// Fuses chains of pointwise instructions with one phase and shape, and bias gradients at their
// ends.
void fuse_chains(Program& program);
// Replaces the updates of a group's tensors, and the norm over them, by one instruction on the
// group's memory.
void flatten_update(Program& program);

}  // namespace crest
