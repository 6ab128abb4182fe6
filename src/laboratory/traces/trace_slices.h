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

// As in Kineto, the host process has annotations and instructions, and the device process (its
// number) has the streams.
inline constexpr int host_process = 1000;
// A slice that overlaps another without nesting moves to a track with this offset.
inline constexpr int overflow_threads = 100'000;

struct TraceSlice {
  TraceTrack track;
  std::string name, category;
  int64_t start_ns = 0, end_ns = 0;
  int depth = 0;  // of slices with equal start and end, the one with the smaller depth is outside
  nlohmann::ordered_json args = nlohmann::ordered_json::object();
  int64_t instruction = 0;  // "External id" of the executed instruction; 0: none
  int64_t correlation = 0;  // of a kernel
};

// All work in the kept step, by track and start, properly nested.
std::vector<TraceSlice> trace_slices(const Profile& profile);
// Moves slices that overlap without nesting to other tracks, and sorts.
void nest(std::vector<TraceSlice>& slices);
// Ends host slices a few nanoseconds early: before the next one starts, and inside the enclosing
// one. Readers add ts and dur in floating point, and would see touching slices overlap.
void keep_apart(std::vector<TraceSlice>& nested);

}  // namespace crest
