#include "data/file_io.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "core/error.h"
#include "core/text.h"

namespace crest {

namespace fs = std::filesystem;

[[noreturn]] static void fail_errno(const char* action, const std::string& name, int error) {
  const char* todo = error == ENOSPC || error == EDQUOT  ? "Free some space or write to another disk."
                     : error == EACCES || error == EPERM ? "Check the permissions of the file and its folder."
                     : error == ENOENT                   ? "Check the path."
                     : error == EMFILE                   ? "Raise the limit of open files (ulimit -n)."
                                                         : "";
  fail(fmt::format("{}: {}", action, std::strerror(error)), printable(name, 400), todo);
}

DataFile DataFile::open_for_reading(const fs::path& path) {
  DataFile f;
  f.name_ = path.string();
  f.fd_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (f.fd_ < 0) fail_errno("cannot open", f.name_, errno);
  struct stat s;
  if (::fstat(f.fd_, &s) == 0 && S_ISDIR(s.st_mode)) fail("it is a folder, not a file", printable(f.name_, 400));
  return f;
}

DataFile DataFile::create(const fs::path& path) {
  DataFile f;
  f.name_ = path.string();
  f.fd_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (f.fd_ < 0) fail_errno("cannot create", f.name_, errno);
  return f;
}

DataFile DataFile::borrow(int descriptor, std::string name) {
  DataFile f;
  f.fd_ = descriptor;
  f.owned_ = false;
  f.name_ = std::move(name);
  return f;
}

DataFile& DataFile::operator=(DataFile&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(owned_, other.owned_);
  std::swap(name_, other.name_);
  return *this;
}

DataFile::~DataFile() {
  if (fd_ >= 0 && owned_) ::close(fd_);
}

uint64_t DataFile::size() const {
  struct stat s;
  if (::fstat(fd_, &s) != 0) fail_errno("cannot read the size", name_, errno);
  return uint64_t(s.st_size);
}

size_t DataFile::read_at(uint64_t offset, void* out, size_t n) const {
  size_t done = 0;
  while (done < n) {
    ssize_t r = ::pread(fd_, static_cast<char*>(out) + done, n - done, off_t(offset + done));
    if (r < 0 && errno == EINTR) continue;
    if (r < 0) fail_errno("cannot read", name_, errno);
    if (r == 0) break;
    done += size_t(r);
  }
  return done;
}

size_t DataFile::read(void* out, size_t n) {
  size_t done = 0;
  while (done < n) {
    ssize_t r = ::read(fd_, static_cast<char*>(out) + done, n - done);
    if (r < 0 && errno == EINTR) continue;
    if (r < 0) fail_errno("cannot read", name_, errno);
    if (r == 0) break;
    done += size_t(r);
  }
  return done;
}

void DataFile::write(const void* data, size_t n) {
  for (size_t done = 0; done < n;) {
    ssize_t w = ::write(fd_, static_cast<const char*>(data) + done, n - done);
    if (w < 0 && errno == EINTR) continue;
    if (w < 0) fail_errno("cannot write", name_, errno);
    done += size_t(w);
  }
}

void DataFile::write_at(uint64_t offset, const void* data, size_t n) {
  for (size_t done = 0; done < n;) {
    ssize_t w = ::pwrite(fd_, static_cast<const char*>(data) + done, n - done, off_t(offset + done));
    if (w < 0 && errno == EINTR) continue;
    if (w < 0) fail_errno("cannot write", name_, errno);
    done += size_t(w);
  }
}

void DataFile::sync_and_close() {
  if (::fsync(fd_) != 0) fail_errno("cannot sync to disk", name_, errno);
  int closed = ::close(fd_);
  fd_ = -1;
  if (closed != 0) fail_errno("cannot close", name_, errno);
}

std::string read_small_file(const fs::path& path, size_t limit) {
  DataFile file = DataFile::open_for_reading(path);
  uint64_t size = file.size();
  if (size > limit)
    fail(fmt::format("the file has {}, more than the limit of {}", format_bytes(double(size)),
                     format_bytes(double(limit))),
         file.name());
  std::string text(size, '\0');
  if (file.read_at(0, text.data(), size) != size) fail("the file became shorter while it was read", file.name());
  return text;
}

void write_file_synced(const fs::path& path, std::string_view content) {
  DataFile file = DataFile::create(path);
  file.write(content.data(), content.size());
  file.sync_and_close();
}

void sync_directory(const fs::path& path) {
  int fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) fail_errno("cannot open the folder", path.string(), errno);
  int result = ::fsync(fd), error = errno;
  ::close(fd);
  // Some file systems cannot sync a folder; they say EINVAL, and there is nothing more to do.
  if (result != 0 && error != EINVAL) fail_errno("cannot sync the folder", path.string(), error);
}

void rename_path(const fs::path& from, const fs::path& to) {
  if (::rename(from.c_str(), to.c_str()) != 0)
    fail_errno(fmt::format("cannot rename to {}", to.string()).c_str(), from.string(), errno);
}

std::string Fnv64::hex() const { return fmt::format("{:016x}", value_); }

}  // namespace crest
