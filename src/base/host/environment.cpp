#include "host/environment.h"

#include <fmt/format.h>
#include <sched.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "core/text.h"
#include "host/cgroup.h"
#include "host/memory.h"

namespace crest {

// Value of the first "key : value" line of /proc/cpuinfo.
static std::string cpuinfo_value(const std::string& text, const std::string& key) {
  for (auto& line : split(text, '\n')) {
    if (!line.starts_with(key)) continue;
    size_t colon = line.find(':');
    if (colon == std::string::npos || line.find_last_not_of(" \t", colon - 1) + 1 != key.size()) continue;
    size_t start = line.find_first_not_of(' ', colon + 1);
    return start == std::string::npos ? "" : line.substr(start);
  }
  return "";
}

static std::vector<std::string> relevant_flags(const std::string& cpuinfo) {
  static const char* const relevant[] = {
      "sse4_2",   "avx",      "f16c",        "fma",         "avx2",        "avx_vnni", "avx512f",  "avx512bw",
      "avx512vl", "avx512dq", "avx512_vnni", "avx512_bf16", "avx512_fp16", "amx_tile", "amx_bf16", "amx_int8",
      "amx_fp16", "asimd",    "asimdhp",     "sve",         "sve2",        "bf16",     "i8mm"};
  std::string text = cpuinfo_value(cpuinfo, "flags");
  if (text.empty()) text = cpuinfo_value(cpuinfo, "Features");  // arm64
  auto present = split(text, ' ');
  std::vector<std::string> result;
  for (const char* flag : relevant)
    if (std::find(present.begin(), present.end(), flag) != present.end()) result.emplace_back(flag);
  return result;
}

int64_t last_level_cache_bytes(const std::string& root) {
  int64_t best_level = 0, best = 0;
  for (int i = 0; i < 8; ++i) {
    std::string folder = fmt::format("{}/sys/devices/system/cpu/cpu0/cache/index{}", root, i);
    int64_t level = std::atoll(read_system_file(folder + "/level").c_str());
    std::string size = read_system_file(folder + "/size");  // "32768K"
    int64_t bytes = std::atoll(size.c_str());
    if (size.find('K') != std::string::npos) bytes <<= 10;
    if (size.find('M') != std::string::npos) bytes <<= 20;
    if (level > best_level && bytes > 0) best_level = level, best = bytes;
  }
  return best;
}

static double cores_usable(const std::string& root) {
  cpu_set_t set;
  CPU_ZERO(&set);
  int cores = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : int(sysconf(_SC_NPROCESSORS_ONLN));
  double quota = read_cgroup_limits(root).cpus;
  return quota > 0 ? std::min(double(cores), quota) : double(cores);
}

static std::string host_id() {
  char host[256] = {};
  gethostname(host, sizeof host - 1);
  uint64_t hash = 0xcbf29ce484222325ull;  // FNV-1a
  for (const char* c = host; *c; ++c) hash = (hash ^ uint8_t(*c)) * 0x100000001b3ull;
  return fmt::format("{:016x}", hash);
}

static std::string utc_seconds() {
  time_t now = time(nullptr);
  tm parts{};
  gmtime_r(&now, &parts);
  char text[32];
  strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

Environment read_environment(std::vector<std::pair<std::string, std::string>> libraries, const std::string& root) {
  Environment e;
  std::string cpuinfo = read_system_file(root + "/proc/cpuinfo");
  e.cpu_model = cpuinfo_value(cpuinfo, "model name");
  utsname system{};
  if (uname(&system) == 0) {
    e.kernel = fmt::format("{} {} {}", system.sysname, system.release, system.machine);
    if (e.cpu_model.empty()) e.cpu_model = system.machine;
  }
  e.cores_online = int(sysconf(_SC_NPROCESSORS_ONLN));
  e.cores_usable = cores_usable(root);
  e.isa_flags = relevant_flags(cpuinfo);
  e.last_level_cache_bytes = last_level_cache_bytes(root);
  e.memory_total_bytes = total_memory_bytes(root);
  e.memory_available_bytes = available_memory_bytes(root);
#ifdef __clang__
  e.compiler = fmt::format("clang {}", __clang_version__);
#else
  e.compiler = fmt::format("gcc {}", __VERSION__);
#endif
  e.crest_version = CREST_VERSION;
  e.libraries = std::move(libraries);
  e.load_average = std::atof(read_system_file(root + "/proc/loadavg").c_str());
  e.time_utc = utc_seconds();
  e.host_id = host_id();
  return e;
}

std::string to_json(const Environment& e, int indent) {
  nlohmann::ordered_json libraries = nlohmann::ordered_json::object();
  for (auto& [library, version] : e.libraries) libraries[library] = version;
  nlohmann::ordered_json j = {
      {"cpu_model", e.cpu_model},
      {"cores_online", e.cores_online},
      {"cores_usable", e.cores_usable},
      {"isa_flags", e.isa_flags},
      {"last_level_cache_bytes", e.last_level_cache_bytes},
      {"memory_total_bytes", e.memory_total_bytes},
      {"memory_available_bytes", e.memory_available_bytes},
      {"kernel", e.kernel},
      {"compiler", e.compiler},
      {"crest_version", e.crest_version},
      {"libraries", libraries},
      {"load_average", e.load_average},
      {"time_utc", e.time_utc},
      {"host_id", e.host_id},
  };
  return j.dump(indent, ' ', false, nlohmann::json::error_handler_t::replace);
}

int usable_threads() { return std::max(1, int(cores_usable(""))); }

}  // namespace crest
