// Limits of this process' control groups (v2, or v1's memory and cpu controllers).
#pragma once
#include <cstdint>
#include <string>

namespace crest {

struct CgroupLimits {
  int64_t memory_bytes = -1;       // smallest limit up to the root; -1 = none
  int64_t memory_used_bytes = -1;  // of the group with this limit, without droppable page cache
  double cpus = -1;                // smallest quota / period; -1 = none
};

CgroupLimits read_cgroup_limits(const std::string& root = "");
// How often the groups' CPU quota has stopped processes in them since the groups were created.
int64_t read_cgroup_throttles(const std::string& root = "");

// The whole file; empty if it cannot be read (files in /proc and /sys have no size).
std::string read_system_file(const std::string& path);
// The number after `key` in lines "key: 123 kB" or "key 123"; -1 if absent.
int64_t number_after(const std::string& text, const std::string& key);

}  // namespace crest
