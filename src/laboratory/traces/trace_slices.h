// Slices of trace tracks: whole nanoseconds, properly nested on every track.
#pragma once
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "profile/profile.h"

namespace crest {

struct TraceTrack {
  int process = 0, thread = 0;
  bool operator==(const TraceTrack&) const = default;
  auto operator<=>(const TraceTrack&) const = default;
};

// As in Kineto, the host process holds annotations and instructions, and the device process (its
// number) holds the streams.
inline constexpr int host_process = 1000;
// A slice that would overlap another without nesting moves to a track with this offset.
inline constexpr int overflow_threads = 100'000;

struct TraceSlice {
  TraceTrack track;
  std::string name, category;
  int64_t start_ns = 0, end_ns = 0;
  int depth = 0;  // for slices that start and end together, the smaller depth encloses the larger
  nlohmann::ordered_json args = nlohmann::ordered_json::object();
  int64_t instruction = 0;  // "External id" of the executed instruction; 0: none
  int64_t correlation = 0;  // of a kernel
};

// Everything that ran in the kept step, by track and start; properly nested.
std::vector<TraceSlice> trace_slices(const Profile& profile);
// Moves slices that overlap without nesting to other tracks, and sorts.
void nest(std::vector<TraceSlice>& slices);
// Ends host slices a few nanoseconds early: before the next one starts, and inside the enclosing
// one. Readers add ts and dur in floating point, so touching slices would overlap.
void keep_apart(std::vector<TraceSlice>& nested);

}  // namespace crest
