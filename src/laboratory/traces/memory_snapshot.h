// PyTorch's CUDA memory snapshot (torch.cuda.memory._dump_snapshot) of a profiled step: a pickle
// that the viewer at pytorch.org/memory_viz and torch.cuda._memory_viz open. Described in
// docs/reference/traces.md.
#pragma once
#include <string>

#include "profile/profile.h"

namespace crest {

// The two arenas are segments; planned blocks are allocations and frees in the order of the
// instructions. The stack of an allocation shows its origin: Program and instruction, scope, phase,
// layer, category.
std::string memory_snapshot(const Profile& profile);
void write_memory_snapshot(const Profile& profile, const std::string& path);

}  // namespace crest
