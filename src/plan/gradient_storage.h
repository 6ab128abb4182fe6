// Gradients that a step hands from its backward half to the update, in the transient arena: the memory of a gradient
// that is not written yet holds activations, whose memory is free once it is.
#pragma once
#include "plan/compile.h"

namespace crest {

// The storages of gradients, one behind the other from the arena's start. Not for Programs whose micro steps add
// gradients up: there they exist from the first forward pass on, and are persistent.
std::vector<PersistentBlock> gradient_storages(const std::vector<CompiledProgram>& programs);

// What they take of the arena while each Program runs: in a Program that makes them, a tensor from where it is written
// to the end; in one that gets them, from the start to where it is read last. The update runs over whole groups: what
// lies between their tensors was zero at first and is taken in every Program, so that it stays so.
std::vector<std::vector<Block>> gradient_blocks(const std::vector<CompiledProgram>& programs,
                                                const std::vector<PersistentBlock>& storages);

}  // namespace crest
