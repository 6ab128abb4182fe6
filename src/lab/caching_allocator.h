// What a caching allocator would reserve for a step: the comparison that "planning leaves no fragmentation" needs.
#pragma once
#include <cstdint>

#include "plan/memory_plan.h"

namespace crest::lab {

// Replays the blocks of a plan (taken at `first`, freed after `last`) through an allocator that works as PyTorch's CUDA
// one does by default: sizes rounded to 512 B; pools for requests up to 1 MiB, served from 2 MiB segments, and larger
// ones, served from 20 MiB segments below 10 MiB and from their own size rounded to 2 MiB above; best fit; blocks are
// split and joined again within their segment, and segments are never given back. Returns the bytes of all segments.
int64_t caching_allocator_bytes(const MemoryPlan& plan);

}  // namespace crest::lab
