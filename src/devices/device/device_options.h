// The device and CUDA libraries of a command:
// --device, --threads, --memory-limit and --libraries.
#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "backend/backend.h"
#include "settings/setting.h"

namespace crest {

// The CUDA libraries of a process.
struct LibraryOptions {
  std::string folders;          // --libraries: folders to search first, separated by ':'
  std::string cublaslt, cudnn;  // --cublaslt, --cudnn: a file or its folder; no other place is searched
  bool operator==(const LibraryOptions&) const = default;
  // Throws a usage error if something does not exist.
  void check() const;
  // Checks them and applies them to this process, before a library is opened. DeviceOptions::find()
  // also does it.
  void use() const;
  // The given flags and values, with absolute paths.
  std::vector<std::pair<std::string, std::string>> flags() const;
  // Whether a flag ("--cudnn") names code to load into the process: a run's own file must not do
  // this.
  static bool is_flag(const std::string& flag);
};

struct DeviceOptions {
  std::string device = "auto";
  int threads = 0;
  std::string memory_limit;  // "" = the device's
  LibraryOptions libraries;
  int processes = 1;   // of this run on this machine: each gets an equal share of threads and memory
  int local_rank = 0;  // of this process among them
  bool notes = true;   // print them
  // Finds the device. Notes for the user go to standard error.
  Device find() const;
  int64_t limit(const Device& device) const;  // bytes
  // As given, for another process of this program.
  std::vector<std::string> flags() const;
};

// Rows bound to DeviceOptions.
const std::vector<Setting>& device_settings();

}  // namespace crest
