// Versions of the libraries that Crest uses, as environment files and `crest devices` show them.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "backend/backend.h"

namespace crest {

// (name, version). With a CUDA device also the driver, the runtime, and cuBLASLt, cuDNN and NVRTC as they were opened.
std::vector<std::pair<std::string, std::string>> library_versions(const Device& device = {});

}  // namespace crest
