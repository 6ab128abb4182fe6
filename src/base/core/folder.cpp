#include "core/folder.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "core/error.h"
#include "core/retry.h"
#include "core/system_error.h"
#include "core/text.h"

namespace crest {

void fail_errno(int code, const char* doing, const std::string& path) {
  const char* advice = "";
  switch (code) {
    case ENOSPC:
    case EDQUOT: advice = "Free some space, or write to another disk."; break;
    case EIO: advice = "The disk reports a failure; check it (dmesg), or use another one."; break;
    case EACCES:
    case EPERM:
    case EROFS: advice = "Check owner and permissions, or choose another folder."; break;
    case ENOENT: advice = "Check the path."; break;
    case EMFILE:
    case ENFILE: advice = "Raise the limit of open files (ulimit -n)."; break;
    default: break;
  }
  throw SystemError(code, fmt::format("cannot {}: {}", doing, std::strerror(code)), printable(path), advice);
}

Folder::~Folder() {
  if (fd_ >= 0) syscalls->close(fd_);
}

Folder::Folder(Folder&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), linked_(other.linked_), path_(std::move(other.path_)) {}

Folder& Folder::operator=(Folder&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(linked_, other.linked_);
  std::swap(path_, other.path_);
  return *this;
}

Folder Folder::open(const std::string& path) {
  std::string name = path;
  while (name.size() > 1 && name.back() == '/') name.pop_back();  // "link/" is the link's target
  Folder found = here().folder_or_link(name);
  found.path_ = path;
  return found;
}

Folder Folder::here() {
  Folder folder;
  folder.fd_ = AT_FDCWD;  // negative: never closed
  return folder;
}

Folder Folder::open_below(const std::string& name, bool follow) const {
  constexpr int flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC;
  int fd = retry([&] { return syscalls->openat(fd_, name.c_str(), flags | O_NOFOLLOW, 0); });
  if (fd >= 0) return {fd, path_of(name)};
  if (!follow || (errno != ELOOP && errno != ENOTDIR)) fail_open("open the folder", name);
  fd = retry([&] { return syscalls->openat(fd_, name.c_str(), flags, 0); });
  if (fd < 0) fail_errno(errno, "open the folder", path_of(name));
  return {fd, path_of(name), true};
}

void Folder::fail_open(const char* doing, const std::string& name) const {
  const int code = errno;
  refuse_link(name);
  fail_errno(code, doing, path_of(name));
}

bool Folder::is_at(const std::string& path) const {
  struct stat mine, there;
  return ::fstat(fd_, &mine) == 0 && ::stat(path.c_str(), &there) == 0 && mine.st_ino == there.st_ino &&
         mine.st_dev == there.st_dev;
}

File Folder::create(const std::string& name) const {
  constexpr int flags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
  int fd = retry([&] { return syscalls->openat(fd_, name.c_str(), flags, 0644); });
  if (fd < 0) fail_open("create", name);
  return {fd, path_of(name)};
}

File Folder::create_anew(const std::string& name) const {
  if (retry([&] { return syscalls->unlinkat(fd_, name.c_str(), 0); }) != 0 && errno != ENOENT)
    fail_errno(errno, "replace", path_of(name));
  return create(name);
}

File Folder::append(const std::string& name) const {
  constexpr int flags = O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC;
  int fd = retry([&] { return syscalls->openat(fd_, name.c_str(), flags, 0644); });
  if (fd < 0) fail_open("open", name);
  return {fd, path_of(name)};
}

File Folder::open_read(const std::string& name) const {
  // Without O_NONBLOCK, opening a pipe without a writer would hang.
  int fd = retry([&] { return ::openat(fd_, name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC); });
  if (fd < 0) fail_open("open", name);
  File file(fd, path_of(name));
  struct stat info;
  if (::fstat(fd, &info) != 0) fail_errno(errno, "read the size", file.path());
  if (S_ISDIR(info.st_mode)) fail("is a folder, not a file", printable(file.path()));
  if (!S_ISREG(info.st_mode)) fail("is not a regular file", printable(file.path()));
  return file;
}

void Folder::write_synced(const std::string& name, std::string_view bytes) const {
  File file = create(name);
  file.write(bytes);
  file.sync();
  file.close();
}

void Folder::write_atomic(const std::string& name, std::string_view bytes) const {
  struct stat info;
  refuse_link(name);
  if (::fstatat(fd_, name.c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0 && !S_ISREG(info.st_mode))
    fail(S_ISDIR(info.st_mode) ? "is a folder, not a file" : "is a device or a pipe, not a file",
         printable(path_of(name)), "Move it away.");
  const std::string temporary = name + ".tmp";
  try {
    File file = create_anew(temporary);
    file.write(bytes);
    file.sync();
    file.close();
    rename(temporary, name);
  } catch (...) {
    syscalls->unlinkat(fd_, temporary.c_str(), 0);
    throw;
  }
  sync();
}

bool Folder::link_atomic(const std::string& name, const std::string& target) const {
  struct stat info;
  if (::fstatat(fd_, name.c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0 && !S_ISREG(info.st_mode) && !S_ISLNK(info.st_mode))
    fail(S_ISDIR(info.st_mode) ? "is a folder, not a link" : "is a device or a pipe, not a link",
         printable(path_of(name)), "Move it away.");
  const std::string temporary = name + ".tmp";
  remove(temporary);
  if (retry([&] { return syscalls->symlinkat(target.c_str(), fd_, temporary.c_str()); }) != 0) {
    // FAT and some network file systems.
    if (errno == EPERM || errno == EOPNOTSUPP || errno == ENOSYS) return false;
    fail_errno(errno, "create the link", path_of(name));
  }
  try {
    rename(temporary, name);
  } catch (...) {
    syscalls->unlinkat(fd_, temporary.c_str(), 0);
    throw;
  }
  sync();
  return true;
}

bool Folder::make(const std::string& name) const {
  if (retry([&] { return syscalls->mkdirat(fd_, name.c_str(), 0755); }) == 0) return true;
  if (errno != EEXIST) fail_errno(errno, "create the folder", path_of(name));
  return false;
}

void Folder::rename(const std::string& from, const std::string& to) const {
  if (retry([&] { return syscalls->renameat(fd_, from.c_str(), fd_, to.c_str()); }) != 0)
    fail_errno(errno, "rename to its final name", path_of(from));
}

void Folder::remove(const std::string& name) const {
  struct stat info;
  if (::fstatat(fd_, name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0) {
    if (errno == ENOENT) return;
    fail_errno(errno, "look at", path_of(name));
  }
  const bool is_folder = S_ISDIR(info.st_mode);
  if (is_folder) {
    Folder inside = folder(name);
    // In a fixed order, for reproducible fault tests.
    for (auto& entry : inside.names()) inside.remove(entry);
  }
  if (retry([&] { return syscalls->unlinkat(fd_, name.c_str(), is_folder ? AT_REMOVEDIR : 0); }) != 0 &&
      errno != ENOENT)
    fail_errno(errno, is_folder ? "remove the folder" : "remove", path_of(name));
}

void Folder::sync() const {
  // Some network and FUSE file systems cannot sync folders and return EINVAL; nothing more can be
  // done there.
  if (retry([&] { return syscalls->fsync(fd_); }) != 0 && errno != EINVAL) fail_errno(errno, "sync the folder", path_);
}

bool Folder::has(const std::string& name) const {
  struct stat info;
  return ::fstatat(fd_, name.c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0;
}

void Folder::refuse_link(const std::string& name) const {
  struct stat info;
  if (::fstatat(fd_, name.c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0 && S_ISLNK(info.st_mode))
    fail("is a symbolic link, and nothing is written through it", printable(path_of(name), 1000),
         "Remove the link, or put what it names there.");
}

std::vector<std::string> Folder::names() const {
  int again = retry([&] { return ::openat(fd_, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC); });
  if (again < 0) fail_errno(errno, "open the folder", path_);
  return names_of(again, path_);
}

std::vector<std::string> names_of(int fd, const std::string& path) {
  std::vector<std::string> names;
  DIR* handle = ::fdopendir(fd);
  if (!handle) {
    int code = errno;
    ::close(fd);
    fail_errno(code, "open the folder", path);
  }
  errno = 0;
  while (dirent* entry = ::readdir(handle))
    if (std::string_view name = entry->d_name; name != "." && name != "..") names.emplace_back(name);
  int code = errno;
  ::closedir(handle);
  if (code != 0) fail_errno(code, "read the folder", path);
  std::sort(names.begin(), names.end());
  return names;
}

Folder::Lock Folder::lock() const {
  if (retry([&] { return ::flock(fd_, LOCK_EX | LOCK_NB); }) == 0) return Lock::held;
  return errno == EWOULDBLOCK ? Lock::busy : Lock::unknown;
}

}  // namespace crest
