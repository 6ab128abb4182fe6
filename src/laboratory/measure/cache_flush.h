// Empties the caches between samples, so a step starts as if other work had run before it.
#pragma once
#include <cstdint>
#include <memory>

#include "backend/runtime.h"

namespace crest {

// CPU: all threads write a buffer of four times the last-level cache. GPU: a memset of twice the
// last-level cache. 256 MiB where the cache size is unknown.
class CacheFlush {
 public:
  // The runtime (of a GPU) must outlive it.
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
