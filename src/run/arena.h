// One block of memory for all tensors of a kind. Pages are zero at first; large arenas ask for huge pages.
#pragma once
#include <cstdint>

namespace crest {

class Arena {
 public:
  explicit Arena(int64_t bytes);  // throws does_not_fit when the system has no such memory
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  void* at(int64_t offset) const { return static_cast<char*>(data_) + offset; }
  int64_t bytes() const { return bytes_; }

 private:
  void* data_ = nullptr;
  int64_t bytes_ = 0, mapped_ = 0;
};

}  // namespace crest
