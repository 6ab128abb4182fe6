// What a caching allocator would reserve for a step: the reference for "planning leaves no
// fragmentation".
#pragma once
#include <cstdint>

#include "plan/memory_plan.h"

namespace crest::lab {

// Replays the blocks of a plan (allocated at `first`, freed after `last`) through a model of
// PyTorch's default CUDA allocator: sizes are rounded to 512 B; requests up to 1 MiB come from 2
// MiB segments; larger ones come from 20 MiB segments below 10 MiB, and from a segment of their own
// size rounded to 2 MiB above; best fit; blocks are split and merged within their segment; segments
// are never released. Returns the bytes of all segments.
int64_t caching_allocator_bytes(const MemoryPlan& plan);

}  // namespace crest::lab
