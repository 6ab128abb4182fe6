// Memory of this process and of the machine, in bytes. A container's limit counts as the machine's.
#pragma once
#include <cstdint>
#include <string>

namespace crest {

// Resident set now, and its peak since the start or the last reset_peak_resident(). 0 where the system does not tell.
int64_t resident_bytes();
int64_t peak_resident_bytes();
// Starts a new peak at the present resident set; false where the kernel does not allow it.
bool reset_peak_resident();

// Physical memory, or the smallest memory limit of the control groups this process is in.
// `root` is the file system to look at (tests pass a folder).
int64_t total_memory_bytes(const std::string& root = "");
// What can still be allocated without swapping: MemAvailable, or what the control group leaves (its page cache that
// can be dropped counts as free).
int64_t available_memory_bytes(const std::string& root = "");

}  // namespace crest
