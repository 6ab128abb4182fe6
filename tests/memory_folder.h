#pragma once
#include <sys/statvfs.h>
#include <unistd.h>

#include "core/temporary_folder.h"

namespace crest {

// In memory where possible: for tests with a thousand syncs, independent of the disk. A container's
// /dev/shm may be small, or run no programs.
class MemoryFolder : public TemporaryFolder {
 public:
  MemoryFolder() : TemporaryFolder(usable() ? "/dev/shm" : "") {}

 private:
  static bool usable() {
    struct statvfs s {};
    return ::access("/dev/shm", W_OK | X_OK) == 0 && ::statvfs("/dev/shm", &s) == 0 && !(s.f_flag & ST_NOEXEC) &&
           double(s.f_bavail) * double(s.f_frsize) >= double(1 << 30);
  }
};

}  // namespace crest
