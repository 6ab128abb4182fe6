// Versions of the libraries that Crest uses, as environment files and `crest devices` show them.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "backend/backend.h"

namespace crest {

// (name, version). With a CUDA device, also the driver, the runtime, and the cuBLASLt, cuDNN and
// NVRTC that were loaded.
std::vector<std::pair<std::string, std::string>> library_versions(const Device& device = {});

}  // namespace crest
