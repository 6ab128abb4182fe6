#include "host/cgroup.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <vector>

#include "core/text.h"

namespace crest {

std::string read_system_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

int64_t number_after(const std::string& text, const std::string& key) {
  for (size_t at = text.find(key); at != std::string::npos; at = text.find(key, at + 1)) {
    if (at > 0 && text[at - 1] != '\n') continue;
    size_t start = text.find_first_not_of(": \t", at + key.size());
    if (start == at + key.size() || start == std::string::npos) continue;
    return std::strtoll(text.c_str() + start, nullptr, 10);
  }
  return -1;
}

// "/a/b" -> "/a/b", "/a", "": a parent's limit applies too, and inside a container the path may not
// exist at all.
static std::vector<std::string> with_parents(std::string path) {
  std::vector<std::string> all;
  while (!path.empty() && path != "/") {
    all.push_back(path);
    path.resize(path.find_last_of('/') == std::string::npos ? 0 : path.find_last_of('/'));
  }
  all.emplace_back();
  return all;
}

static void apply_memory(CgroupLimits& limits, const std::string& folder, bool v2) {
  std::string text = read_system_file(folder + (v2 ? "/memory.max" : "/memory.limit_in_bytes"));
  char* end = nullptr;
  int64_t limit = std::strtoll(text.c_str(), &end, 10);
  if (end == text.c_str() || limit <= 0) return;  // absent, or "max"
  if (limit > int64_t(1) << 60) return;           // v1 writes "no limit" as a huge number
  if (limits.memory_bytes >= 0 && limit >= limits.memory_bytes) return;
  limits.memory_bytes = limit;
  std::string used = read_system_file(folder + (v2 ? "/memory.current" : "/memory.usage_in_bytes"));
  int64_t droppable =
      number_after(read_system_file(folder + "/memory.stat"), v2 ? "inactive_file" : "total_inactive_file");
  limits.memory_used_bytes = std::max<int64_t>(0, std::atoll(used.c_str()) - std::max<int64_t>(0, droppable));
}

static void apply_cpu(CgroupLimits& limits, const std::string& folder, bool v2) {
  double quota = -1, period = -1;
  if (v2) {
    std::istringstream text(read_system_file(folder + "/cpu.max"));
    text >> quota >> period;  // "max 100000" leaves both unset
    if (!text) return;
  } else {
    quota = std::atof(read_system_file(folder + "/cpu.cfs_quota_us").c_str());
    period = std::atof(read_system_file(folder + "/cpu.cfs_period_us").c_str());
  }
  if (quota <= 0 || period <= 0) return;
  double cpus = quota / period;
  if (limits.cpus < 0 || cpus < limits.cpus) limits.cpus = cpus;
}

// Calls level(folder, v2, controller) for each control group of this process and its parents.
// controller is "" for v2, which has one tree for all.
template <class F>
static void for_each_group(const std::string& root, F level) {
  // Lines "hierarchy:controllers:path"; v2 has one line "0::path".
  for (auto& line : split(read_system_file(root + "/proc/self/cgroup"), '\n')) {
    auto parts = split(line, ':');
    if (parts.size() < 3) continue;
    std::string path = line.substr(parts[0].size() + parts[1].size() + 2);
    if (path.find("..") != std::string::npos) path.clear();
    auto controllers = split(parts[1], ',');
    auto has = [&](const char* c) { return std::find(controllers.begin(), controllers.end(), c) != controllers.end(); };
    std::string base = root + "/sys/fs/cgroup";
    for (auto& above : with_parents(path)) {
      if (parts[1].empty()) level(base + above, true, "");
      for (const char* controller : {"memory", "cpu"})
        if (has(controller)) level(base + "/" + controller + above, false, controller);
    }
  }
}

CgroupLimits read_cgroup_limits(const std::string& root) {
  CgroupLimits limits;
  for_each_group(root, [&](const std::string& folder, bool v2, const std::string& controller) {
    if (v2 || controller == "memory") apply_memory(limits, folder, v2);
    if (v2 || controller == "cpu") apply_cpu(limits, folder, v2);
  });
  return limits;
}

int64_t read_cgroup_throttles(const std::string& root) {
  int64_t sum = 0;
  for_each_group(root, [&](const std::string& folder, bool v2, const std::string& controller) {
    if (!v2 && controller != "cpu") return;
    sum += std::max<int64_t>(0, number_after(read_system_file(folder + "/cpu.stat"), "nr_throttled"));
  });
  return sum;
}

}  // namespace crest
