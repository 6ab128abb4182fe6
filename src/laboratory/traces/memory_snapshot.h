// A profiled step as a PyTorch CUDA memory snapshot (torch.cuda.memory._dump_snapshot): a pickle
// for the viewer at pytorch.org/memory_viz and torch.cuda._memory_viz. Described in
// docs/reference/traces.md.
#pragma once
#include <string>

#include "profile/profile.h"

namespace crest {

// The two arenas are segments. Planned blocks are allocations and frees in the order of the
// instructions. An allocation's stack shows its origin: Program and instruction, scope, phase,
// layer, category.
std::string memory_snapshot(const Profile& profile);
void write_memory_snapshot(const Profile& profile, const std::string& path);

}  // namespace crest
