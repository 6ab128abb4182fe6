#include "measure/cache_flush.h"

#include <algorithm>
#include <cstring>

#include "backend/cuda/nvml.h"
#include "host/environment.h"

namespace crest {

static int64_t flush_bytes(const Device& device) {
  bool gpu = device.kind == "cuda";
  int64_t cache = gpu ? cuda::l2_cache_bytes(device.index) : last_level_cache_bytes();
  return cache > 0 ? cache * (gpu ? 2 : 4) : int64_t(256) << 20;
}

CacheFlush::CacheFlush(const Device& device, Runtime& runtime)
    : runtime_(runtime), threads_(device.threads), bytes_(flush_bytes(device)), memory_(runtime.allocate(bytes_)) {}

CacheFlush::~CacheFlush() { runtime_.release(memory_, bytes_); }

void CacheFlush::operator()() {
  if (!runtime_.host_memory()) {
    runtime_.zero(memory_, bytes_);
    runtime_.synchronize();
    return;
  }
  ++round_;  // new bytes each time, so every write changes memory
  int64_t part = (bytes_ + threads_ - 1) / threads_;
#pragma omp parallel for num_threads(threads_) schedule(static, 1)
  for (int t = 0; t < threads_; ++t) {
    int64_t from = std::min(bytes_, t * part), to = std::min(bytes_, from + part);
    std::memset(static_cast<char*>(memory_) + from, round_, size_t(to - from));
  }
}

}  // namespace crest
