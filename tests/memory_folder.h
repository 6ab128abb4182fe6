#pragma once
#include <unistd.h>

#include "core/temporary_folder.h"

namespace crest {

// In memory where possible: what syncs a thousand times, and does not depend on the disk.
class MemoryFolder : public TemporaryFolder {
 public:
  MemoryFolder() : TemporaryFolder(::access("/dev/shm", W_OK | X_OK) == 0 ? "/dev/shm" : "") {}
};

}  // namespace crest
