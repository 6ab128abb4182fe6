// A profiled step as a Chrome trace for Perfetto, chrome://tracing and tools for PyTorch traces: it
// uses the field names and categories of PyTorch's profiler (Kineto). Described in
// docs/reference/traces.md.
#pragma once
#include <string>

#include "profile/profile.h"

namespace crest {

// Tracks: instructions by stream, under the step, its calls and phases; device kernels by CUDA
// stream; memory by category.
std::string chrome_trace(const Profile& profile);
void write_chrome_trace(const Profile& profile, const std::string& path);

}  // namespace crest
