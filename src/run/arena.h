// One block of a device's memory for all tensors of a kind; zeroed at first.
#pragma once
#include "backend/runtime.h"

namespace crest {

class Arena {
 public:
  Arena(Runtime& runtime, int64_t bytes)  // throws does_not_fit if the device does not have the memory
      : runtime_(runtime), data_(runtime.allocate(bytes)), bytes_(bytes) {}
  ~Arena() { runtime_.release(data_, bytes_); }
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  void* at(int64_t offset) const { return static_cast<char*>(data_) + offset; }
  int64_t bytes() const { return bytes_; }

 private:
  Runtime& runtime_;
  void* data_;
  int64_t bytes_;
};

}  // namespace crest
