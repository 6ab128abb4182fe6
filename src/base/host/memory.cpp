#include "host/memory.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>

#include "host/cgroup.h"

namespace crest {

static int64_t status_kib(const char* key) {
  return std::max<int64_t>(0, number_after(read_system_file("/proc/self/status"), key));
}

int64_t resident_bytes() {
  long pages = 0, resident = 0;
  std::ifstream file("/proc/self/statm");
  return file >> pages >> resident ? int64_t(resident) * sysconf(_SC_PAGESIZE) : 0;
}

int64_t peak_resident_bytes() { return status_kib("VmHWM") * 1024; }

bool reset_peak_resident() {
  std::ofstream file("/proc/self/clear_refs");
  file << "5" << std::flush;  // proc(5): 5 resets VmHWM
  return bool(file);
}

int64_t total_memory_bytes(const std::string& root) {
  int64_t total = std::max<int64_t>(0, number_after(read_system_file(root + "/proc/meminfo"), "MemTotal")) * 1024;
  CgroupLimits limits = read_cgroup_limits(root);
  return limits.memory_bytes >= 0 ? std::min(total, limits.memory_bytes) : total;
}

int64_t available_memory_bytes(const std::string& root) {
  int64_t free = std::max<int64_t>(0, number_after(read_system_file(root + "/proc/meminfo"), "MemAvailable")) * 1024;
  CgroupLimits limits = read_cgroup_limits(root);
  if (limits.memory_bytes < 0) return free;
  return std::min(free, std::max<int64_t>(0, limits.memory_bytes - limits.memory_used_bytes));
}

}  // namespace crest
