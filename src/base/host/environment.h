// Influences on a measurement besides Crest itself. Stored with every run and every result.
#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace crest {

struct Environment {
  std::string cpu_model;
  int cores_online = 0;                // in the machine
  double cores_usable = 0;             // allowed by affinity and the control group's quota; may be fractional
  std::vector<std::string> isa_flags;  // flags relevant to kernels: avx2, avx512f, avx512_bf16, amx_bf16, ...
  int64_t last_level_cache_bytes = 0;  // 0 = unknown
  int64_t memory_total_bytes = 0, memory_available_bytes = 0;  // control group limits respected
  std::string kernel;                                          // "Linux 6.1.0 x86_64"
  std::string compiler, crest_version;
  std::vector<std::pair<std::string, std::string>> libraries;  // name, version; from the caller
  double load_average = 0;                                     // one minute; if high, other processes were running
  std::string time_utc;                                        // "2026-01-31T12:00:00Z"
  std::string host_id;  // hash of the host name: distinguishes machines without naming them
};

// `root` is the file system to read (tests pass a folder with proc/ and sys/).
Environment read_environment(std::vector<std::pair<std::string, std::string>> libraries = {},
                             const std::string& root = "");

// One JSON object with the fields above as keys.
std::string to_json(const Environment& environment, int indent = 2);

// 0 = unknown.
int64_t last_level_cache_bytes(const std::string& root = "");

// Number of threads worth starting: cores_usable rounded down, at least 1.
int usable_threads();

}  // namespace crest
