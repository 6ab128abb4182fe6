// The bytes that a caching allocator would reserve for a step, to check "planning leaves no
// fragmentation".
#pragma once
#include <cstdint>

#include "plan/memory_plan.h"

namespace crest::lab {

// Replays the blocks of a plan (allocated at `first`, freed after `last`) through a model of
// PyTorch's default CUDA allocator. Sizes are rounded to 512 B. Requests up to 1 MiB come from 2
// MiB segments, requests below 10 MiB from 20 MiB segments, and larger ones get a segment of their
// own size rounded to 2 MiB. Best fit; blocks are split and merged within their segment; segments
// are never released. Returns the bytes of all segments.
int64_t caching_allocator_bytes(const MemoryPlan& plan);

}  // namespace crest::lab
