// The planned memory of a step as a list of allocations and frees, as in an allocator, for trace
// files and memory viewers.
#pragma once
#include <cstdint>
#include <vector>

#include "profile/profile.h"

namespace crest {

struct MemoryEvent {
  bool alloc = true;
  int persistent = -1;  // row of ProfileMemory::persistent, or
  int block = -1;       // row of ProfileMemory::blocks
  int call = -1;        // call of the step; -1: before it
  int instr = -1;       // row of Profile::instrs; -1: before the step
  double ms = 0;        // never decreases
};

// The arenas get plausible device addresses, the transient one after the persistent one.
inline constexpr int64_t persistent_address = int64_t(0x7f) << 40;
int64_t transient_address(const Profile&);
int64_t address(const Profile&, const MemoryEvent&);
int64_t bytes(const Profile&, const MemoryEvent&);

// Persistent memory first. Then for each instruction of each call the allocations before it and the
// frees after it. Above `limit` events, repeated calls of a Program are omitted, since their memory
// repeats.
std::vector<MemoryEvent> memory_events(const Profile&, size_t limit = 400'000);

}  // namespace crest
