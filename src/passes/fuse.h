// Parts of the fusion pass.
#pragma once
#include "program/program.h"

namespace crest {

// Replaces chains of pointwise instructions of one phase and shape (with trailing bias gradients) by fused
// instructions.
void fuse_chains(Program& program);

}  // namespace crest
