// Gradients handed from the backward half of a step to the update, in the transient arena. Before a
// gradient is written, its memory holds activations, unneeded by then.
#pragma once
#include "plan/compile.h"

namespace crest {

// The storages of gradients, one after another from the start of the arena. Not of gradients to
// which several micro steps add: these exist from the first forward pass on, and are persistent. A
// shard of their sum (--shard optimizer) is written by the last micro step only.
std::vector<PersistentBlock> gradient_storages(const std::vector<CompiledProgram>& programs, int64_t micro_steps);

// Their parts of the arena while each Program runs. In a producing Program:
// a tensor from its first write to the end. In a receiving Program: from
// the start to the last read; a storage received by none: while it is used.
// The update runs over whole groups: the gaps between their tensors start
// as zeros and are reserved in every Program, so they stay zero.
std::vector<std::vector<Block>> gradient_blocks(const std::vector<CompiledProgram>& programs,
                                                const std::vector<PersistentBlock>& storages);

}  // namespace crest
