// Key figures of a profile: shares, ratios, idle time, and what holds the memory at its peak. Shown
// in the terminal, JSON and reports.
#pragma once
#include <string>
#include <vector>

#include "profile/profile.h"

namespace crest {

struct TimeAndFlops {
  double ms = 0, flops = 0;
  int64_t rows = 0;
};

// Sums over rows, that is over instructions; idle time is not included.
struct ProfileSummary {
  double total_ms = 0, floor_ms = 0;
  double forward_ms = 0, recompute_ms = 0, backward_ms = 0, update_ms = 0, communication_ms = 0;
  double hidden_ms = 0, exposed_ms = 0;    // parts of communication_ms (profile/overlap.h)
  TimeAndFlops contractions;               // matmuls, including those in naive attention
  TimeAndFlops attention;                  // everything between the projections: fused, or all parts of naive attention
  TimeAndFlops softmax, products;          // in naive attention; no rows otherwise
  int64_t launches = 0, idle_periods = 0;  // periods in the kept step, in which nothing ran
  double idle_ms = 0, longest_idle_ms = 0;
};
ProfileSummary summary_of(const Profile& profile);
nlohmann::ordered_json to_json(const ProfileSummary& summary);
// The result of a recorded profile: median step time, rates, memory.
nlohmann::ordered_json profile_result(const Profile& profile, const std::string& device);

// Time of one layer by phase.
struct LayerTime {
  int layer = -1;
  double forward_ms = 0, recompute_ms = 0, backward_ms = 0;
  double ms() const { return forward_ms + recompute_ms + backward_ms; }
};
std::vector<LayerTime> layer_times(const Profile& profile);  // in order; without rows outside the layers

// The first point of the timeline with the most bytes; instr -1 without instructions.
MemoryPoint memory_peak(const Profile& profile);

// Bytes in use at a point by category, phase and layer of the writing instruction, largest first.
// Persistent memory has phase "".
struct MemoryHolder {
  std::string category, phase;
  int layer = -1;
  int64_t bytes = 0, blocks = 0;
};
std::vector<MemoryHolder> memory_holders(const Profile& profile, const MemoryPoint& point);

// The largest allocations; one of the same name in several Programs appears once. instr: the row
// that writes it, -1 for persistent ones and those the host writes.
struct MemoryAllocation {
  std::string name, category;
  int64_t bytes = 0;
  int instr = -1;
};
std::vector<MemoryAllocation> largest_allocations(const Profile& profile, size_t count);

}  // namespace crest
