// The most memory in use during a phase of a run, and the largest part given back before its end:
// buffers needed only while kernels are chosen or a graph is captured.
#pragma once
#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "backend/backend.h"
#include "core/thread.h"

namespace crest {

// From construction to stop(). On a CPU the peak of the process's resident set, as the kernel keeps
// it (it is reset at the start); on a GPU its memory in use by all processes, read by a thread
// every 0.2 ms from the driver: it may miss faster changes.
class MemoryPeak {
 public:
  explicit MemoryPeak(const Device& device);
  // Reads with `now`.
  explicit MemoryPeak(std::function<std::optional<int64_t>()> now);
  ~MemoryPeak();
  MemoryPeak(const MemoryPeak&) = delete;
  MemoryPeak& operator=(const MemoryPeak&) = delete;

  struct Bytes {
    int64_t start = 0, peak = 0, end = 0;
    int64_t transient() const { return peak - end; }
    std::string missing;  // why there are no figures; empty: there are
  };
  Bytes stop();

 private:
  void watch();
  void read();

  std::function<std::optional<int64_t>()> now_;
  bool resets_ = false;  // the system keeps the peak
  Bytes bytes_;
  std::atomic<bool> done_ = false;
  Thread thread_;
};

}  // namespace crest
