// Gradients in the transient arena, passed from a step's backward half to the update. Before a
// gradient is written, its memory has activations, unneeded by then.
#pragma once
#include "plan/compile.h"

namespace crest {

// The storages of gradients, one after another from the start of the arena. Not of gradients to
// which several micro steps add: these exist from the first forward pass on, and are persistent. A
// shard of their sum (--shard optimizer) is written by the last micro step only.
std::vector<PersistentBlock> gradient_storages(const std::vector<CompiledProgram>& programs, int64_t micro_steps);

// The arena blocks of these storages while each Program runs. A producing Program holds a tensor
// from its first write to the end. A receiving Program holds it from the start to the last read. If
// no Program receives a storage, it exists only while it is used. An update works on whole groups,
// padding included. Padding starts as zeros and is reserved in every Program, so it stays zero.
std::vector<std::vector<Block>> gradient_blocks(const std::vector<CompiledProgram>& programs,
                                                const std::vector<PersistentBlock>& storages);

}  // namespace crest
