// Durable files. Every system call with an effect on the file system goes through one table, so
// tests can count, fail, shorten, kill at, or record any of them (tests/checkpoint/faults.h).
// Reading changes nothing and is direct.
#pragma once
#include <sys/statvfs.h>
#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>

namespace crest {

// Same meaning, results and errno as the POSIX functions with these names. `folder` is an open
// folder, or AT_FDCWD.
struct Syscalls {
  int (*openat)(int folder, const char* path, int flags, mode_t mode);
  ssize_t (*write)(int fd, const void* data, size_t bytes);
  int (*fsync)(int fd);
  int (*fdatasync)(int fd);
  int (*close)(int fd);
  int (*renameat)(int from_folder, const char* from, int to_folder, const char* to);
  int (*mkdirat)(int folder, const char* path, mode_t mode);
  int (*unlinkat)(int folder, const char* path, int flags);
  int (*statvfs)(const char* path, struct statvfs* out);
  // renameat2 with RENAME_EXCHANGE: two names are exchanged in one step.
  int (*exchange)(const char* one, const char* other);
  int (*symlinkat)(const char* target, int folder, const char* path);
};

extern const Syscalls real_syscalls;
// The table in use. Only tests change it (ScopedSyscalls).
extern const Syscalls* syscalls;

class ScopedSyscalls {
 public:
  explicit ScopedSyscalls(const Syscalls* table) : before_(syscalls) { syscalls = table; }
  ~ScopedSyscalls() { syscalls = before_; }
  ScopedSyscalls(const ScopedSyscalls&) = delete;
  ScopedSyscalls& operator=(const ScopedSyscalls&) = delete;

 private:
  const Syscalls* before_;
};

// An open file. It closes itself. All functions throw an Error with path, reason and remedy.
class File {
 public:
  File() = default;
  ~File();
  File(File&& other) noexcept;
  File& operator=(File&& other) noexcept;
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  // For reading. Regular files only: a directory, pipe or device is an error and never hangs.
  static File open_read(const std::string& path);
  // For reading to the end once; pipes and devices are allowed. Reading a pipe waits for its
  // writer.
  static File open_stream(const std::string& path);
  // A duplicate of a descriptor with another owner (standard input). `name` is for messages.
  static File duplicate(int descriptor, const std::string& name);
  // A new or emptied file for writing.
  static File create(const std::string& path);
  // A new file for writing. An existing file of this name is removed, and links are not followed.
  // For names not chosen by the user.
  static File create_new(const std::string& path);

  bool is_open() const { return fd_ >= 0; }
  int fd() const { return fd_; }
  const std::string& path() const { return path_; }
  // Owns an open descriptor.
  File(int fd, std::string path) : fd_(fd), path_(std::move(path)) {}
  // Current size in bytes.
  uint64_t size() const;
  // Reads exactly `bytes` at `offset`; a shorter file is an error. Thread-safe.
  void read_at(void* data, size_t bytes, uint64_t offset) const;
  // Reads up to `bytes` at `offset`, or from where the last read ended; fewer only at the end of
  // the file. Returns the number.
  size_t read_some_at(void* data, size_t bytes, uint64_t offset) const;
  size_t read_some(void* data, size_t bytes);
  // The available bytes, up to `bytes`; 0 at the end of the file. While there are none, `waiting`
  // is called again and again, also after a signal; it may throw.
  size_t read_available(void* data, size_t bytes, const std::function<void()>& waiting);
  // Writes everything, however often the system accepts only a part.
  void write(const void* data, size_t bytes);
  void write(std::string_view text) { write(text.data(), text.size()); }
  // The next write starts at this byte.
  void seek(uint64_t offset);
  void sync();
  // Closes, and reports the errors of close(2) (network file systems report lost writes there).
  void close();

 private:
  int fd_ = -1;
  std::string path_;
};

// The whole file. More than `limit` bytes is an error before anything is allocated. A pipe passed
// by a shell (/dev/fd/63) is read to its end; other named pipes are an error.
std::string read_file(const std::string& path, uint64_t limit);
// Afterwards the file holds `bytes` and survives power loss. At every moment before, it holds the
// old or the new content (temporary file next to it, sync, rename, sync of the folder).
void write_file_atomic(const std::string& path, std::string_view bytes);
// Creates a file not to be read before it is complete (in a folder published later): write, sync,
// close.
void write_file_synced(const std::string& path, std::string_view bytes);

// Makes creations, renames and removals in the folder survive power loss.
void sync_directory(const std::string& path);
// mkdir -p; created folders are synced into their parents.
void create_directories(const std::string& path);
void create_directory(const std::string& path);
// Creates one folder; false: the name is taken.
bool make_directory(const std::string& path);
void rename_path(const std::string& from, const std::string& to);
// Exchanges two existing names in one step: at every moment both exist. Returns false, with nothing
// changed, if the file system or kernel cannot.
bool exchange_paths(const std::string& one, const std::string& other);
// Removes a file, a symbolic link (not its target) or a folder with its contents. A missing path is
// fine.
void remove_tree(const std::string& path);
bool path_exists(const std::string& path);
bool is_directory(const std::string& path);
// "a/b" + "c" -> "a/b/c".
std::string join_path(const std::string& folder, const std::string& name);
// The folder of the path: "a/b/c" -> "a/b", "c" -> ".".
std::string parent_path(const std::string& path);

// Bytes that the file system of `folder` (which must exist) has free for this user.
uint64_t free_space(const std::string& folder);
// Throws if the file system of `folder` (which must exist) has less than `bytes` free for this
// user. The message states the needed and the free bytes. `what` names the thing to write.
void require_free_space(const std::string& folder, uint64_t bytes, std::string_view what);

}  // namespace crest
