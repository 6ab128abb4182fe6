// Memory of this process and of the machine, in bytes. The limit of a container is treated as the
// machine's.
#pragma once
#include <cstdint>
#include <string>

namespace crest {

// The resident set now, and its peak since the start or the last reset_peak_resident(). 0 if the
// system does not report it.
int64_t resident_bytes();
int64_t peak_resident_bytes();
// Restarts the peak at the present resident set. False if the kernel does not allow it.
bool reset_peak_resident();

// Physical memory, or the smallest memory limit of this process's control groups.
// `root` is the file system to read (tests pass a folder).
int64_t total_memory_bytes(const std::string& root = "");
// Memory available without swapping: MemAvailable, or the rest of the control group's limit (its
// droppable page cache counts as free).
int64_t available_memory_bytes(const std::string& root = "");

}  // namespace crest
