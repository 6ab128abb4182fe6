// Choices between algorithms, made by timing and kept in a file per GPU, driver and library
// version: so they are made once per machine, not once per run. It is a cache: a missing, damaged
// or unwritable file costs only time.
#pragma once
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

namespace crest::cuda {

class AlgorithmCache {
 public:
  struct Choice {
    std::string variant;      // the chosen way ("epilogue")
    std::string algorithm;    // of the library, in hexadecimal
    double microseconds = 0;  // its time
    bool operator==(const Choice&) const = default;
  };

  // path: of the file; empty: choices live as long as the process.
  explicit AlgorithmCache(std::string path);

  std::optional<Choice> find(const std::string& key) const;
  // Remembers a choice and writes the file; choices written meanwhile by other processes stay in
  // it. Thread safe.
  void store(const std::string& key, const Choice& choice);

  const std::string& path() const { return path_; }
  // Why the file could not be read or written; empty when it could.
  std::string problem() const;

 private:
  std::string path_;
  mutable std::mutex mutex_;
  std::map<std::string, Choice> choices_;
  std::string problem_;
};

// The file of a GPU, driver and library version: algorithms-nvidia-h200-13000-130100.json in
// CREST_CACHE, else in $XDG_CACHE_HOME/crest, else in ~/.cache/crest; empty when none of these
// variables is set.
std::string algorithm_cache_path(std::string_view gpu, int driver, size_t library);

std::string to_hex(const void* data, size_t bytes);
// False when the text is not `bytes` bytes in hexadecimal.
bool from_hex(std::string_view text, void* data, size_t bytes);

}  // namespace crest::cuda
