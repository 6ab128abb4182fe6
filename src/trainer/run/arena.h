// A block of device or host memory for all tensors of a kind, initially zero.
#pragma once
#include "backend/runtime.h"

namespace crest {

class Arena {
 public:
  // Throws does_not_fit if memory is too small.
  Arena(Runtime& runtime, int64_t bytes, MemorySpace space = MemorySpace::device)
      : runtime_(runtime),
        space_(space),
        data_(space == MemorySpace::host ? runtime.allocate_host(bytes) : runtime.allocate(bytes)),
        bytes_(bytes) {}
  ~Arena() {
    if (space_ == MemorySpace::host)
      runtime_.release_host(data_, bytes_);
    else
      runtime_.release(data_, bytes_);
  }
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  void* at(int64_t offset) const { return static_cast<char*>(data_) + offset; }
  int64_t bytes() const { return bytes_; }

 private:
  Runtime& runtime_;
  MemorySpace space_;
  void* data_;
  int64_t bytes_;
};

}  // namespace crest
