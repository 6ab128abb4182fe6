// A counter of this process's progress. If it stands still for long, the process hangs
// (comm/activity.h).
#pragma once
#include <atomic>
#include <cstdint>

namespace crest {

inline std::atomic<uint64_t> progress_count = 0;
// Work counts its pieces: an instruction, a read sample.
inline void count_progress() { progress_count.fetch_add(1, std::memory_order_relaxed); }

}  // namespace crest
