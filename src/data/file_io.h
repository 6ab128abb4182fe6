// Plain file input and output with errors that name the file: pread (never mmap, a file cut short must not be a
// SIGBUS), whole writes, sync.
#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

namespace crest {

class DataFile {
 public:
  DataFile() = default;
  static DataFile open_for_reading(const std::filesystem::path& path);
  // Creates or empties the file.
  static DataFile create(const std::filesystem::path& path);
  // An open descriptor that is not closed here (standard input).
  static DataFile borrow(int descriptor, std::string name);
  DataFile(DataFile&& other) noexcept { *this = std::move(other); }
  DataFile& operator=(DataFile&& other) noexcept;
  ~DataFile();

  const std::string& name() const { return name_; }
  uint64_t size() const;
  // Up to n bytes from `offset` (pread) or from where the last read ended; fewer only at the end of the file.
  size_t read_at(uint64_t offset, void* out, size_t n) const;
  size_t read(void* out, size_t n);
  void write(const void* data, size_t n);
  void write_at(uint64_t offset, const void* data, size_t n);
  // fsync, then close: errors of either are reported.
  void sync_and_close();

 private:
  int fd_ = -1;
  bool owned_ = true;
  std::string name_;
};

// The whole file; an error when it is larger than `limit` bytes.
std::string read_small_file(const std::filesystem::path& path, size_t limit);
void write_file_synced(const std::filesystem::path& path, std::string_view content);
void sync_directory(const std::filesystem::path& path);
// rename(2); an error names both.
void rename_path(const std::filesystem::path& from, const std::filesystem::path& to);

// FNV-1a, 64 bits (Fowler, Noll, Vo): tells changed inputs apart, not made for security.
class Fnv64 {
 public:
  void update(std::string_view bytes) {
    for (char c : bytes) value_ = (value_ ^ uint8_t(c)) * 0x100000001b3ull;
  }
  uint64_t value() const { return value_; }
  std::string hex() const;

 private:
  uint64_t value_ = 0xcbf29ce484222325ull;
};

}  // namespace crest
