// A profiled step as a Chrome trace with the field names and categories of PyTorch's profiler
// (Kineto): opens in Perfetto, chrome://tracing and tools that read PyTorch's traces. Described in
// docs/reference/traces.md.
#pragma once
#include <string>

#include "profile/profile.h"

namespace crest {

// Tracks: instructions by stream, below the step, its calls and phases; device kernels by CUDA
// stream; memory by category.
std::string chrome_trace(const Profile& profile);
void write_chrome_trace(const Profile& profile, const std::string& path);

}  // namespace crest
