#include "run/arena.h"

#include <sys/mman.h>

#include "core/error.h"
#include "core/text.h"

namespace crest {

Arena::Arena(int64_t bytes) : bytes_(bytes) {
  mapped_ = (bytes + (2 << 20) - 1) / (2 << 20) * (2 << 20);
  if (mapped_ == 0) return;
  data_ = mmap(nullptr, size_t(mapped_), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data_ == MAP_FAILED) {
    data_ = nullptr;
    throw Error(Exit::does_not_fit, "the system refused " + format_bytes(double(bytes)), "memory",
                "Use a smaller --batch, --recompute, or a smaller model.");
  }
  if (mapped_ >= (8 << 20)) madvise(data_, size_t(mapped_), MADV_HUGEPAGE);
}

Arena::~Arena() {
  if (data_) munmap(data_, size_t(mapped_));
}

}  // namespace crest
