#include "core/io.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/folder.h"
#include "core/retry.h"
#include "core/system_error.h"
#include "core/text.h"

namespace crest {

const Syscalls real_syscalls = {
    [](int folder, const char* path, int flags, mode_t mode) { return ::openat(folder, path, flags, mode); },
    ::write,
    ::fsync,
    ::fdatasync,
    ::close,
    ::renameat,
    ::mkdirat,
    ::unlinkat,
    ::statvfs,
    [](const char* one, const char* other) { return ::renameat2(AT_FDCWD, one, AT_FDCWD, other, RENAME_EXCHANGE); },
    ::symlinkat,
};
const Syscalls* syscalls = &real_syscalls;

File::~File() {
  if (fd_ >= 0) syscalls->close(fd_);
}

File::File(File&& other) noexcept : fd_(std::exchange(other.fd_, -1)), path_(std::move(other.path_)) {}

File& File::operator=(File&& other) noexcept {
  if (this != &other) {
    if (fd_ >= 0) syscalls->close(fd_);
    fd_ = std::exchange(other.fd_, -1);
    path_ = std::move(other.path_);
  }
  return *this;
}

File File::open_read(const std::string& path) {
  // Without O_NONBLOCK, opening a pipe without a writer would hang.
  int fd = retry([&] { return ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK); });
  if (fd < 0) fail_errno(errno, "open", path);
  File file;
  file.fd_ = fd;
  file.path_ = path;
  struct stat info;
  if (::fstat(fd, &info) != 0) fail_errno(errno, "read the size", path);
  if (S_ISDIR(info.st_mode)) fail("is a folder, not a file", printable(path));
  if (!S_ISREG(info.st_mode)) fail("is not a regular file", printable(path));
  return file;
}

// Opening a pipe would wait for its writer, beyond the reach of any signal (SA_RESTART).
File File::open_stream(const std::string& path) {
  File file;
  file.fd_ = retry([&] { return ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK); });
  if (file.fd_ < 0) fail_errno(errno, "open", path);
  file.path_ = path;
  if (is_directory(path)) fail("is a folder, not a file", printable(path));
  return file;
}

File File::duplicate(int descriptor, const std::string& name) {
  File file;
  file.fd_ = ::fcntl(descriptor, F_DUPFD_CLOEXEC, 0);
  if (file.fd_ < 0) fail_errno(errno, "open", name);
  file.path_ = name;
  return file;
}

File File::create(const std::string& path) {
  int fd =
      retry([&] { return syscalls->openat(AT_FDCWD, path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644); });
  if (fd < 0) fail_errno(errno, "create", path);
  return {fd, path};
}

File File::create_new(const std::string& path) { return Folder::here().create_anew(path); }

uint64_t File::size() const {
  struct stat info;
  if (::fstat(fd_, &info) != 0) fail_errno(errno, "read the size", path_);
  return uint64_t(info.st_size);
}

// Calls step(where to, how much, how much is done) until everything is done or the end is reached.
template <class Step>
static size_t fill(void* data, size_t bytes, const std::string& path, Step step) {
  size_t done = 0;
  while (done < bytes) {
    ssize_t got =
        retry([&] { return step(static_cast<char*>(data) + done, std::min(bytes - done, size_t(1) << 30), done); });
    if (got < 0) fail_errno(errno, "read", path);
    if (got == 0) break;
    done += size_t(got);
  }
  return done;
}

// Whether a read returns at once, after at most this time (-1: any) or a signal. A pipe without a
// writer yet is not at its end.
static bool is_readable(int fd, int milliseconds) {
  pollfd p = {fd, POLLIN, 0};
  return ::poll(&p, 1, milliseconds) > 0;
}

size_t File::read_some_at(void* data, size_t bytes, uint64_t offset) const {
  return fill(data, bytes, path_,
              [&](char* to, size_t n, size_t done) { return ::pread(fd_, to, n, off_t(offset + done)); });
}

void File::read_at(void* data, size_t bytes, uint64_t offset) const {
  size_t got = read_some_at(data, bytes, offset);
  if (got < bytes)
    fail(fmt::format("ends at byte {}, {} bytes short", offset + got, bytes - got), printable(path_),
         "The file is cut short; copy or download it again.");
}

size_t File::read_some(void* data, size_t bytes) {
  return fill(data, bytes, path_, [&](char* to, size_t n, size_t) {
    while (!is_readable(fd_, -1)) {
    }
    return ::read(fd_, to, n);
  });
}

size_t File::read_available(void* data, size_t bytes, const std::function<void()>& waiting) {
  constexpr int looks_ms = 100;
  for (;;) {
    waiting();
    if (!is_readable(fd_, looks_ms)) continue;
    ssize_t got = ::read(fd_, data, bytes);
    if (got >= 0) return size_t(got);
    if (errno != EINTR && errno != EAGAIN) fail_errno(errno, "read", path_);
  }
}

void File::seek(uint64_t offset) {
  if (::lseek(fd_, off_t(offset), SEEK_SET) < 0) fail_errno(errno, "seek", path_);
}

void File::write(const void* data, size_t bytes) {
  auto* from = static_cast<const char*>(data);
  while (bytes > 0) {
    ssize_t done = retry([&] { return syscalls->write(fd_, from, std::min(bytes, size_t(1) << 30)); });
    if (done < 0) fail_errno(errno, "write", path_);
    if (done == 0) fail_errno(ENOSPC, "write", path_);
    from += done, bytes -= size_t(done);
  }
}

void File::sync() {
  if (retry([&] { return syscalls->fsync(fd_); }) != 0) fail_errno(errno, "sync to disk", path_);
}

void File::close() {
  // close(2) releases the descriptor even when it fails, so it is never retried.
  int fd = std::exchange(fd_, -1);
  if (fd >= 0 && syscalls->close(fd) != 0 && errno != EINTR) fail_errno(errno, "close", path_);
}

// Waiting for a named pipe in a folder would never end. A shell's /dev/fd/63 may be a pipe.
static void refuse_named_pipe(const std::string& path) {
  struct stat info;
  if (path.starts_with("/dev/") || path.starts_with("/proc/")) return;
  if (::stat(path.c_str(), &info) == 0 && S_ISFIFO(info.st_mode))
    fail("is a named pipe, not a file", printable(path), "Remove it, or copy the file there again.");
}

std::string read_file(const std::string& path, uint64_t limit) {
  refuse_named_pipe(path);
  int fd = retry([&] { return ::open(path.c_str(), O_RDONLY | O_CLOEXEC); });
  if (fd < 0) fail_errno(errno, "open", path);
  struct Closer {
    int fd;
    ~Closer() { ::close(fd); }
  } closer{fd};
  struct stat info;
  if (::fstat(fd, &info) != 0) fail_errno(errno, "read the size", path);
  if (S_ISDIR(info.st_mode)) fail("is a folder, not a file", printable(path));
  auto too_large = [&] {
    fail(fmt::format("is larger than the {} allowed here", format_bytes(double(limit))), printable(path),
         "Check that this is the right file.");
  };
  if (S_ISREG(info.st_mode) && uint64_t(info.st_size) > limit) too_large();
  std::string text(S_ISREG(info.st_mode) ? size_t(info.st_size) : 0, '\0');
  size_t filled = 0;
  for (;;) {
    // One spare byte beyond the size detects the end of the file without growing the buffer.
    char spare[4096];
    bool inside = filled < text.size();
    ssize_t got = retry([&] {
      return inside ? ::read(fd, text.data() + filled, text.size() - filled) : ::read(fd, spare, sizeof spare);
    });
    if (got < 0) fail_errno(errno, "read", path);
    if (got == 0) break;
    if (!inside) text.append(spare, size_t(got));
    filled += size_t(got);
    if (filled > limit) too_large();
  }
  text.resize(filled);
  return text;
}

void write_file_synced(const std::string& path, std::string_view bytes) {
  File file = File::create(path);
  file.write(bytes);
  file.sync();
  file.close();
}

// A rename would replace a device or a pipe by a file.
static void reject_what_is_no_file(const std::string& path) {
  struct stat info;
  if (::stat(path.c_str(), &info) != 0 || S_ISREG(info.st_mode)) return;
  fail(S_ISDIR(info.st_mode) ? "is a folder, not a file" : "is a device or a pipe, not a file", printable(path),
       "Name a file.");
}

void write_file_atomic(const std::string& path, std::string_view bytes) {
  reject_what_is_no_file(path);
  std::string temporary = path + ".tmp";
  try {
    File file = File::create_new(temporary);
    file.write(bytes);
    file.sync();
    file.close();
    rename_path(temporary, path);
  } catch (...) {
    syscalls->unlinkat(AT_FDCWD, temporary.c_str(), 0);
    throw;
  }
  sync_directory(parent_path(path));
}

void sync_directory(const std::string& path) { Folder::open(path).sync(); }

void create_directory(const std::string& path) {
  if (!make_directory(path)) fail_errno(EEXIST, "create the folder", path);
}

bool make_directory(const std::string& path) { return Folder::here().make(path); }

void create_directories(const std::string& path) {
  if (is_directory(path)) return;
  std::string parent = parent_path(path);
  if (parent != path) create_directories(parent);
  if (!make_directory(path)) {
    if (is_directory(path)) return;
    fail_errno(EEXIST, "create the folder", path);
  }
  sync_directory(parent);
}

void rename_path(const std::string& from, const std::string& to) { Folder::here().rename(from, to); }

bool exchange_paths(const std::string& one, const std::string& other) {
  if (retry([&] { return syscalls->exchange(one.c_str(), other.c_str()); }) == 0) return true;
  // EPERM: a sandbox without this call. If a permission is really missing, a plain rename reports
  // it.
  if (errno == EINVAL || errno == ENOSYS || errno == ENOTSUP || errno == EPERM) return false;
  fail_errno(errno, "exchange with what it replaces", one);
}

void remove_tree(const std::string& path) { Folder::here().remove(path); }

std::vector<std::string> names_in(const std::string& folder) {
  int fd = retry([&] { return ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); });
  if (fd < 0 && (errno == ENOENT || errno == ENOTDIR)) return {};
  if (fd < 0) fail_errno(errno, "open the folder", folder);
  return names_of(fd, folder);
}

PathKind kind_of(const std::string& path) {
  struct stat info;
  if (::stat(path.c_str(), &info) == 0)
    return S_ISDIR(info.st_mode) ? PathKind::folder : S_ISREG(info.st_mode) ? PathKind::file : PathKind::other;
  if (errno == ENOENT || errno == ENOTDIR) return PathKind::nothing;
  fail_errno(errno, "look at it", path);
}

bool path_exists(const std::string& path) {
  struct stat info;
  return ::lstat(path.c_str(), &info) == 0;
}

bool is_directory(const std::string& path) {
  struct stat info;
  return ::stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

std::string join_path(const std::string& folder, const std::string& name) {
  if (folder.empty()) return name;
  return folder.back() == '/' ? folder + name : folder + "/" + name;
}

std::string parent_path(const std::string& path) {
  size_t end = path.size();
  while (end > 1 && path[end - 1] == '/') --end;
  size_t slash = path.rfind('/', end - 1);
  if (end == 0 || slash == std::string::npos) return ".";
  while (slash > 0 && path[slash - 1] == '/') --slash;
  return slash == 0 ? "/" : path.substr(0, slash);
}

uint64_t free_space(const std::string& folder) {
  struct statvfs info;
  if (retry([&] { return syscalls->statvfs(folder.c_str(), &info); }) != 0)
    fail_errno(errno, "query the free space", folder);
  return uint64_t(info.f_bavail) * uint64_t(info.f_frsize);
}

void require_free_space(const std::string& folder, uint64_t bytes, std::string_view what) {
  const uint64_t free_bytes = free_space(folder);
  if (free_bytes < bytes)
    fail(fmt::format("not enough disk space for {}: {} bytes ({}) needed, {} bytes ({}) free", what, bytes,
                     format_bytes(double(bytes)), free_bytes, format_bytes(double(free_bytes))),
         printable(folder),
         fmt::format("Free some space{}, or write to another disk (--out).",
                     what == "a checkpoint" ? ", keep fewer checkpoints (--keep)" : ""));
}

}  // namespace crest
