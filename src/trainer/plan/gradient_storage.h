// Gradients that the backward half of a step hands to the update, in the transient arena. Before a
// gradient is written, its memory holds activations, which are no longer needed by then.
#pragma once
#include "plan/compile.h"

namespace crest {

// The storages of gradients, one after another from the start of the arena. Not for Programs whose
// micro steps accumulate gradients: there they exist from the first forward pass on, and are
// persistent.
std::vector<PersistentBlock> gradient_storages(const std::vector<CompiledProgram>& programs);

// The parts of the arena that they occupy while each Program runs. In a Program that produces them:
// a tensor from where it is written to the end. In a Program that receives them: from the start to
// the last read; of a storage that none receives: while it is used. The update runs over whole
// groups: the gaps between their tensors start as zeros and are reserved in every Program, so that
// they stay zero.
std::vector<std::vector<Block>> gradient_blocks(const std::vector<CompiledProgram>& programs,
                                                const std::vector<PersistentBlock>& storages);

}  // namespace crest
