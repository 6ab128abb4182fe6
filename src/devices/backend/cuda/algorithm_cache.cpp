#include "backend/cuda/algorithm_cache.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>

#include <cctype>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "core/cache_folder.h"
#include "core/error.h"
#include "core/io.h"
#include "core/json.h"

namespace crest::cuda {

namespace {

constexpr int format = 1;
constexpr JsonLimits limits = {.bytes = uint64_t(8) << 20, .depth = 4, .values = 200'000, .string_bytes = 4096};

// Held by the one process reading, merging and writing. The lock ends with the descriptor.
class FileLock {
 public:
  explicit FileLock(const std::string& path) {
    fd_ = syscalls->openat(AT_FDCWD, path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (fd_ < 0) fail(fmt::format("cannot open the file ({})", std::strerror(errno)), path);
    int result;
    do result = flock(fd_, LOCK_EX);
    while (result != 0 && errno == EINTR);
    if (result != 0) {
      int code = errno;
      syscalls->close(fd_);
      fail(fmt::format("cannot lock the file ({})", std::strerror(code)), path);
    }
  }
  ~FileLock() { syscalls->close(fd_); }
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

 private:
  int fd_ = -1;
};

// Adds the file's choices for new keys.
void merge(const std::string& path, std::map<std::string, AlgorithmCache::Choice>& into) {
  if (!path_exists(path)) return;
  nlohmann::json document = parse_json_guarded(read_file(path, limits.bytes), limits, path);
  try {
    if (document.at("format") != format) return;
    std::map<std::string, AlgorithmCache::Choice> read;
    for (auto& [key, c] : document.at("choices").items())
      read[key] = {c.at("variant").get<std::string>(), c.at("algorithm").get<std::string>(),
                   c.at("microseconds").get<double>()};
    into.merge(read);
  } catch (const nlohmann::json::exception& e) {
    fail(e.what(), path);
  }
}

std::string text_of(const std::map<std::string, AlgorithmCache::Choice>& choices) {
  nlohmann::json list = nlohmann::json::object();
  for (auto& [key, c] : choices)
    list[key] = {{"variant", c.variant}, {"algorithm", c.algorithm}, {"microseconds", c.microseconds}};
  return nlohmann::json{{"format", format}, {"choices", list}}.dump(1) + "\n";
}

}  // namespace

AlgorithmCache::AlgorithmCache(std::string path) : path_(std::move(path)) {
  if (path_.empty()) return;
  try {
    merge(path_, choices_);
  } catch (const Error& e) {
    problem_ = e.what();
  }
}

std::optional<AlgorithmCache::Choice> AlgorithmCache::find(const std::string& key) const {
  std::lock_guard lock(mutex_);
  auto it = choices_.find(key);
  if (it == choices_.end()) return std::nullopt;
  return it->second;
}

void AlgorithmCache::store(const std::string& key, const Choice& choice) {
  std::lock_guard lock(mutex_);
  choices_[key] = choice;
  if (path_.empty()) return;
  problem_.clear();
  try {
    create_directories(parent_path(path_));
    FileLock file(path_ + ".lock");
    try {
      merge(path_, choices_);
    } catch (const Error& e) {
      problem_ = e.what();  // damaged: written anew
    }
    write_file_atomic(path_, text_of(choices_));
  } catch (const Error& e) {
    problem_ = e.what();
  }
}

std::string AlgorithmCache::problem() const {
  std::lock_guard lock(mutex_);
  return problem_;
}

std::string algorithm_cache_path(std::string_view gpu, int driver, size_t library) {
  std::string folder = cache_folder();
  if (folder.empty()) return "";
  std::string name;
  for (char c : gpu) {
    if (std::isalnum(static_cast<unsigned char>(c)))
      name += char(std::tolower(static_cast<unsigned char>(c)));
    else if (!name.empty() && name.back() != '-')
      name += '-';
  }
  if (!name.empty() && name.back() == '-') name.pop_back();
  return join_path(folder, fmt::format("algorithms-{}-{}-{}.json", name, driver, library));
}

std::string to_hex(const void* data, size_t bytes) {
  std::string text;
  for (size_t i = 0; i < bytes; ++i) text += fmt::format("{:02x}", static_cast<const uint8_t*>(data)[i]);
  return text;
}

bool from_hex(std::string_view text, void* data, size_t bytes) {
  auto digit = [](char c) { return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1; };
  if (text.size() != 2 * bytes) return false;
  for (size_t i = 0; i < bytes; ++i) {
    int high = digit(text[2 * i]), low = digit(text[2 * i + 1]);
    if (high < 0 || low < 0) return false;
    static_cast<uint8_t*>(data)[i] = uint8_t(high * 16 + low);
  }
  return true;
}

}  // namespace crest::cuda
