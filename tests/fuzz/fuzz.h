// Shared by the fuzz targets. One execution is one parse: the first byte of the input chooses one
// of a target's ways (seeds.py writes every seed once for each).
#pragma once
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <string_view>

#include "core/error.h"
#include "core/temporary_folder.h"

namespace crest::fuzz {

#ifdef CREST_MALFORMED_TEST
// In the unit test (tests/malformed), with all targets on their seeds.
inline void check(bool condition) {
  if (!condition) throw std::logic_error("a check of the fuzz target failed");
}
bool add_target(const char* name, void (*target)(std::string_view));
#else
inline void check(bool condition) {
  if (!condition) __builtin_trap();
}
#endif

// One of `ways`, taken off the front; 0 for an empty input.
inline unsigned choose(std::string_view& input, unsigned ways) {
  if (input.empty()) return 0;
  unsigned way = uint8_t(input[0]) % ways;
  input.remove_prefix(1);
  return way;
}

// The bytes as a file in memory; the next call replaces it.
inline const std::string& as_file(std::string_view bytes) {
  static const int fd = ::memfd_create("fuzz", MFD_CLOEXEC);
  static const std::string path = "/proc/self/fd/" + std::to_string(fd);
  check(::ftruncate(fd, 0) == 0 && ::pwrite(fd, bytes.data(), bytes.size(), 0) == ssize_t(bytes.size()));
  return path;
}

// A folder in memory (where the system has one), removed at the end.
class Folder : public TemporaryFolder {
 public:
  Folder() : TemporaryFolder(access("/dev/shm", W_OK | X_OK) == 0 ? "/dev/shm" : "") {}
  std::string put(const std::string& name, std::string_view bytes) const {
    std::string path = *this / name;
    std::FILE* file = std::fopen(path.c_str(), "wb");
    check(file && std::fwrite(bytes.data(), 1, bytes.size(), file) == bytes.size() && std::fclose(file) == 0);
    return path;
  }
};

// Files begin with a header of 1024 bytes, most of them 0: the input's first 32 bytes are its
// start, the rest follows it.
inline std::string after_header(std::string_view input) {
  std::string bytes(input.substr(0, 32));
  bytes.resize(1024);
  return bytes.append(input.substr(std::min<size_t>(32, input.size())));
}

// A parser may refuse its input. Any other exception from it is a crash.
template <class Action>
void or_error(Action action) {
  try {
    action();
  } catch (const Error&) {
  }
}

}  // namespace crest::fuzz

// Defines the target: void fuzz_NAME(std::string_view input).
#ifdef CREST_MALFORMED_TEST
#define CREST_FUZZ_TARGET(run) [[maybe_unused]] static const bool added_##run = crest::fuzz::add_target(#run, run);
#else
#define CREST_FUZZ_TARGET(run)                                               \
  extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) { \
    run({reinterpret_cast<const char*>(data), bytes});                       \
    return 0;                                                                \
  }
#endif
