// Empties the caches between samples, so a step starts as if other work had just run.
#pragma once
#include <cstdint>
#include <memory>

#include "backend/runtime.h"

namespace crest {

// CPU: all threads write a buffer of four times the last-level cache. GPU: a memset of twice the
// last-level cache. Unknown cache size: 256 MiB.
class CacheFlush {
 public:
  // The runtime must outlive it (a GPU's runtime).
  CacheFlush(const Device& device, Runtime& runtime);
  ~CacheFlush();
  CacheFlush(const CacheFlush&) = delete;
  CacheFlush& operator=(const CacheFlush&) = delete;
  // Complete on return.
  void operator()();
  int64_t bytes() const { return bytes_; }

 private:
  Runtime& runtime_;
  int threads_;
  int64_t bytes_;
  void* memory_;
  int round_ = 0;
};

}  // namespace crest
