// Which device a command runs on, and which of CUDA's libraries it takes: what --device, --threads,
// --memory-limit and --libraries say.
#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "backend/backend.h"
#include "settings/setting.h"

namespace crest {

// Which of CUDA's libraries a process takes.
struct LibraryOptions {
  std::string folders;          // --libraries: looked in first, ':' between them
  std::string cublaslt, cudnn;  // --cublaslt, --cudnn: a file, or its folder; taken from there or not at all
  bool operator==(const LibraryOptions&) const = default;
  // A usage error for what does not exist.
  void check() const;
  // Checks, and makes it this process' choice: before a library is opened. DeviceOptions::find() does it, too.
  void use() const;
  // As flag and value, with absolute paths; without what was not given.
  std::vector<std::pair<std::string, std::string>> flags() const;
  // Whether a flag ("--cudnn") names code that the process would open: no file that came with a run may do that.
  static bool is_flag(const std::string& flag);
};

struct DeviceOptions {
  std::string device = "auto";
  int threads = 0;
  std::string memory_limit;  // "" = what the device has
  LibraryOptions libraries;
  // The device; what a user should know about it goes to standard error.
  Device find() const;
  int64_t limit(const Device& device) const;  // bytes
};

// Rows over DeviceOptions.
const std::vector<Setting>& device_settings();

}  // namespace crest
