// Key figures of a profile for terminal, JSON and reports: shares, ratios, idle time, and memory at
// the peak.
#pragma once
#include <string>
#include <vector>

#include "profile/profile.h"

namespace crest {

struct TimeAndFlops {
  double ms = 0, flops = 0;
  int64_t rows = 0;
};

// Sums over instructions, without idle time.
struct ProfileSummary {
  double total_ms = 0, floor_ms = 0;
  double forward_ms = 0, recompute_ms = 0, backward_ms = 0, update_ms = 0, communication_ms = 0;
  double hidden_ms = 0, exposed_ms = 0;              // parts of communication_ms (profile/overlap.h)
  double gradients_ms = 0, gradients_hidden_ms = 0;  // on a stream of their own, and while the compute stream ran
  TimeAndFlops contractions;                         // matmuls, including those in naive attention
  TimeAndFlops attention;                  // everything between the projections: fused, or naive in all its parts
  TimeAndFlops softmax, products;          // of naive attention; no rows otherwise
  int64_t launches = 0, idle_periods = 0;  // periods of the kept step without any work
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

// Bytes in use at a point, by category, phase and layer of the writing instruction, largest first.
// Persistent memory has phase "".
struct MemoryHolder {
  std::string category, phase;
  int layer = -1;
  int64_t bytes = 0, blocks = 0;
};
std::vector<MemoryHolder> memory_holders(const Profile& profile, const MemoryPoint& point);

// The largest allocations. A name in several Programs appears once. instr: the writing row; -1 if
// persistent or written by the host.
struct MemoryAllocation {
  std::string name, category;
  int64_t bytes = 0;
  int instr = -1;
};
std::vector<MemoryAllocation> largest_allocations(const Profile& profile, size_t count);

}  // namespace crest
