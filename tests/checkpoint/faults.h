// Faults at the system calls of core/io.h: count them, fail, shorten or die at the k-th, record
// them for power_loss.h.
#pragma once
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "core/io.h"

namespace crest::test {

enum class Fault { none, fail_once, fail_from, short_write, kill };

struct RecordedCall {
  std::string op, path, path2, data;
};

class Faults {
 public:
  // At call number `k` (from 0) of all calls made while the object lives.
  explicit Faults(Fault fault = Fault::none, int64_t k = -1, int error = EIO, bool record = false)
      : fault_(fault), k_(k), error_(error), record_(record), scope_(&table()) {
    current() = this;
  }
  ~Faults() { current() = nullptr; }
  // A second fault, at a later call: during the
  // cleanup after the first one, or in the next save.
  void then(Fault fault, int64_t k, int error) { second_ = {fault, k, error}; }
  int64_t calls() const { return calls_; }
  // The operation hit by the fault, empty when the run had fewer calls.
  const std::string& hit() const { return hit_; }
  const std::vector<RecordedCall>& recorded() const { return recorded_; }
  // Free space by statvfs; negative = the truth.
  int64_t free_bytes = -1;
  // Whether the file system has symbolic links.
  bool can_link = true;
  // Whether the file system exchanges two names in one step.
  bool can_exchange = true;

 private:
  enum class Action { proceed, fail, shorten };

  Action enter(const char* op) {
    int64_t number = calls_++;
    for (auto& f : {Point{fault_, k_, error_}, second_}) {
      bool now = f.fault == Fault::fail_from ? number >= f.k : number == f.k;
      if (f.fault == Fault::none || !now) continue;
      if (hit_.empty()) hit_ = op;
      if (f.fault == Fault::kill) ::_exit(99);
      if (f.fault == Fault::short_write) return Action::shorten;
      return errno = f.error, Action::fail;
    }
    return Action::proceed;
  }
  void note(const char* op, const std::string& path, const std::string& path2 = "", std::string data = "") {
    if (record_) recorded_.push_back({op, path, path2, std::move(data)});
  }
  template <class Call>
  static int simple(const char* op, Call call, const std::string& path, const std::string& path2 = "") {
    Faults& f = *current();
    if (f.enter(op) == Action::fail) return -1;
    int result = call();
    if (result == 0) f.note(op, path, path2);
    return result;
  }
  std::string path_at(int folder, const char* name) const {
    auto open = paths_.find(folder);
    return folder == AT_FDCWD || open == paths_.end() ? name : join_path(open->second, name);
  }
  // Saves in the background make calls, too.
  static std::mutex& one_at_a_time() {
    static std::mutex mutex;
    return mutex;
  }
  static Faults*& current() {
    static Faults* faults = nullptr;
    return faults;
  }
  static const Syscalls& table() {
    static const Syscalls calls = {
        [](int folder, const char* name, int flags, mode_t mode) {
          std::lock_guard lock(one_at_a_time());
          Faults& f = *current();
          if (f.enter("open") == Action::fail) return -1;
          int fd = ::openat(folder, name, flags, mode);
          if (fd >= 0) f.paths_[fd] = f.path_at(folder, name);
          if (fd >= 0 && (flags & O_CREAT)) f.note("create", f.paths_[fd]);
          return fd;
        },
        [](int fd, const void* data, size_t bytes) {
          std::lock_guard lock(one_at_a_time());
          Faults& f = *current();
          Action action = f.enter("write");
          if (action == Action::fail) return ssize_t(-1);
          ssize_t done = ::write(fd, data, action == Action::shorten ? (bytes + 1) / 2 : bytes);
          if (done > 0) f.note("write", f.paths_[fd], "", std::string(static_cast<const char*>(data), size_t(done)));
          return done;
        },
        [](int fd) {
          std::lock_guard lock(one_at_a_time());
          return simple(
              "fsync", [&] { return ::fsync(fd); }, current()->paths_[fd]);
        },
        [](int fd) {
          std::lock_guard lock(one_at_a_time());
          return simple(
              "fsync", [&] { return ::fdatasync(fd); }, current()->paths_[fd]);
        },
        [](int fd) {
          std::lock_guard lock(one_at_a_time());
          Faults& f = *current();
          Action action = f.enter("close");
          int error = errno, result = ::close(fd);  // the descriptor is gone even when close fails
          errno = error;
          return action == Action::fail ? -1 : result;
        },
        [](int from_folder, const char* from, int to_folder, const char* to) {
          std::lock_guard lock(one_at_a_time());
          Faults& f = *current();
          return simple(
              "rename", [&] { return ::renameat(from_folder, from, to_folder, to); }, f.path_at(from_folder, from),
              f.path_at(to_folder, to));
        },
        [](int folder, const char* name, mode_t mode) {
          std::lock_guard lock(one_at_a_time());
          return simple(
              "mkdir", [&] { return ::mkdirat(folder, name, mode); }, current()->path_at(folder, name));
        },
        [](int folder, const char* name, int flags) {
          std::lock_guard lock(one_at_a_time());
          return simple(
              flags & AT_REMOVEDIR ? "rmdir" : "unlink", [&] { return ::unlinkat(folder, name, flags); },
              current()->path_at(folder, name));
        },
        [](const char* path, struct statvfs* out) {
          std::lock_guard lock(one_at_a_time());
          Faults& f = *current();
          if (f.enter("statvfs") == Action::fail) return -1;
          int result = ::statvfs(path, out);
          if (f.free_bytes >= 0) out->f_frsize = 1, out->f_bavail = fsblkcnt_t(f.free_bytes);
          return result;
        },
        [](const char* one, const char* other) {
          std::lock_guard lock(one_at_a_time());
          if (!current()->can_exchange) return errno = EINVAL, -1;
          return simple(
              "exchange", [&] { return ::renameat2(AT_FDCWD, one, AT_FDCWD, other, RENAME_EXCHANGE); }, one, other);
        },
        [](const char* target, int folder, const char* name) {
          std::lock_guard lock(one_at_a_time());
          if (!current()->can_link) return errno = EPERM, -1;
          return simple(
              "symlink", [&] { return ::symlinkat(target, folder, name); }, current()->path_at(folder, name), target);
        },
    };
    return calls;
  }

  struct Point {
    Fault fault = Fault::none;
    int64_t k = -1;
    int error = EIO;
  };

  Fault fault_;
  Point second_;
  int64_t k_;
  int error_;
  bool record_;
  int64_t calls_ = 0;
  std::string hit_;
  std::vector<RecordedCall> recorded_;
  std::map<int, std::string> paths_;
  ScopedSyscalls scope_;
};

}  // namespace crest::test
