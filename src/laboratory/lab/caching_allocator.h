// PyTorch's CUDA allocator, as a model: the memory it would reserve for a step of Crest. Checks
// "planning leaves no fragmentation" and the settings of PYTORCH_CUDA_ALLOC_CONF.
#pragma once
#include <cstdint>
#include <string>

#include "plan/memory_plan.h"

namespace crest::lab {

// Settings for the place of a block. The defaults are PyTorch's.
struct AllocatorSettings {
  int64_t max_split_size = 0;        // bytes; larger blocks are never split; 0: all are
  double garbage_collection = 0;     // garbage_collection_threshold, a part of memory; 0: off
  bool expandable_segments = false;  // one growing segment for each pool
  int64_t memory = 0;                // the GPU's, in bytes; 0: no limit
};

// Reads PYTORCH_CUDA_ALLOC_CONF: "max_split_size_mb:128,expandable_segments:True", or "default".
// Throws a usage error for settings outside the model.
AllocatorSettings parse_allocator_settings(const std::string& text);

struct AllocatorUse {
  int64_t reserved_bytes = 0;  // the most at any time
  int64_t returned = 0;        // segments given back to the driver (on expandable segments: ranges)
  int64_t retries = 0;         // times that all cached memory was given back (num_alloc_retries)
  bool out_of_memory = false;  // a request failed, and the replay ended there
};

// Replays the blocks of a plan (allocated at `first`, freed after `last`) on one stream. The rules
// are from c10/cuda/CUDACachingAllocator.cpp of PyTorch (commit 001074d2):
// - Sizes are rounded to 512 B. Requests up to 1 MiB come from 2 MiB segments, requests below
//   10 MiB from 20 MiB segments, and larger ones get a segment of their own size rounded to 2 MiB.
// - Best fit. A block is split if more than 1 MiB is left (small ones: 512 B), and joined with free
//   neighbors of its segment.
// - max_split_size: larger blocks are not split. They serve only requests of at least this size,
//   and less than 20 MiB may be left over.
// - garbage_collection: before a new segment, if more than this part of memory is reserved, unsplit
//   free blocks at least as old as the average are given back. Age counts requests. PyTorch does
//   this only after torch.cuda.set_per_process_memory_fraction.
// - expandable_segments: the small pool grows by 2 MiB, the large one by 20 MiB, at the lowest
//   address with room. A block is split if 512 B are left.
// - Without room in memory, oversize blocks are given back (max_split_size), then all unsplit free
//   blocks or free pages, and the request is tried again.
AllocatorUse replay_allocations(const MemoryPlan& plan, const AllocatorSettings& settings = {});

// The smallest memory for a replay without running out of it, by bisection to 2 MiB.
int64_t least_memory(const MemoryPlan& plan, AllocatorSettings settings);

}  // namespace crest::lab
