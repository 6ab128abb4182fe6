// Versions of Crest's libraries, for environment files and `crest devices`.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "backend/backend.h"

namespace crest {

// (name, version). With a CUDA device, also the driver, the runtime, and the loaded cuBLASLt, cuDNN
// and NVRTC.
std::vector<std::pair<std::string, std::string>> library_versions(const Device& device = {});

}  // namespace crest
