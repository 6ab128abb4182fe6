// Crest's libraries: versions for environment files and `crest devices`, files for
// `crest --version`.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "backend/backend.h"

namespace crest {

struct LibraryState {
  std::string name, version;
  std::string path = {};     // empty: unknown, or part of the driver
  std::string install = {};  // of a missing library: the command that brings it
};
// With a CUDA device, also the driver, the runtime, and the loaded cuBLASLt, cuDNN and NVRTC.
std::vector<LibraryState> library_states(const Device& device = {});
// The command for a library of CUDA, by the name in `crest --version`. Empty: there is none.
std::string install_command(const std::string& name, int cuda_major);

// (name, version) of these.
std::vector<std::pair<std::string, std::string>> library_versions(const Device& device = {});

}  // namespace crest
