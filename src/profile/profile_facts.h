// What a profile says in a few numbers: shares, ratios, gaps; who holds the memory at its peak. Terminal, JSON and
// reports show these.
#pragma once
#include <string>
#include <vector>

#include "profile/profile.h"

namespace crest {

struct TimeAndFlops {
  double ms = 0, flops = 0;
  int64_t rows = 0;
};

// Sums over rows, so of instructions alone: idle time is not part of them.
struct ProfileFacts {
  double total_ms = 0, floor_ms = 0;
  double forward_ms = 0, recompute_ms = 0, backward_ms = 0, update_ms = 0, communication_ms = 0;
  TimeAndFlops contractions;       // matrix products, those inside naive attention too
  TimeAndFlops attention;          // what lies between the projections: fused, or all parts of naive attention
  TimeAndFlops softmax, products;  // of naive attention; no rows otherwise
  int64_t launches = 0, gaps = 0;  // gaps: of the kept step, in which nothing ran
  double idle_ms = 0, largest_gap_ms = 0;
};
ProfileFacts facts_of(const Profile& profile);
nlohmann::ordered_json to_json(const ProfileFacts& facts);
// Of a recorded profile, as its own line: median step time, rates, memory.
nlohmann::ordered_json profile_result(const Profile& profile, const std::string& device);

// The layers as a whole: layer of -1 means there are none.
struct LayerTime {
  int layer = -1;
  double forward_ms = 0, recompute_ms = 0, backward_ms = 0;
  double ms() const { return forward_ms + recompute_ms + backward_ms; }
};
std::vector<LayerTime> layer_times(const Profile& profile);  // in order of the layers; without what is outside

// The point of the timeline with the most bytes, the first of them; instr -1 without instructions.
MemoryPoint memory_peak(const Profile& profile);

// Bytes taken at a point by category, phase and layer of what made them; largest first. Persistent: phase "".
struct MemoryHolder {
  std::string category, phase;
  int layer = -1;
  int64_t bytes = 0, blocks = 0;
};
std::vector<MemoryHolder> memory_holders(const Profile& profile, const MemoryPoint& point);

// Largest allocations, those of the same name in several Programs once; instr: the row that makes it, -1 for persistent
// ones and what the host writes.
struct MemoryAllocation {
  std::string name, category;
  int64_t bytes = 0;
  int instr = -1;
  int last_instr = -1;  // row after which it is free again
};
std::vector<MemoryAllocation> largest_allocations(const Profile& profile, size_t count);

}  // namespace crest
