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

// The host's process holds annotations and instructions, the device's its streams, as in Kineto: there a device's
// number is its process.
inline constexpr int host_process = 1000;
// A slice that would cut through another one of its track moves to a track with this much larger number.
inline constexpr int overflow_threads = 100'000;

struct TraceSlice {
  TraceTrack track;
  std::string name, category;
  int64_t start_ns = 0, end_ns = 0;
  int depth = 0;  // of slices that start and end together the smaller one encloses the larger one
  nlohmann::ordered_json args = nlohmann::ordered_json::object();
  int64_t instruction = 0;  // "External id" of the executed instruction that this is or belongs to; 0: none
  int64_t correlation = 0;  // of a kernel
};

// Everything that ran in the kept step, by track and start; nested: a slice lies within its predecessor's or behind it.
std::vector<TraceSlice> trace_slices(const Profile& profile);
// Moves slices that overlap without nesting to other tracks, sorts.
void nest(std::vector<TraceSlice>& slices);
// Ends the host's slices some nanoseconds early: before the next one starts, and within the one around it. Readers add
// ts and dur as floating-point numbers, and what touches then overlaps.
void keep_apart(std::vector<TraceSlice>& nested);

}  // namespace crest
