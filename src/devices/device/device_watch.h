// The state of the device during a training run: a thread reads it once a second, so reading never
// delays a step.
#pragma once
#include <condition_variable>
#include <functional>
#include <mutex>

#include "backend/backend.h"
#include "core/thread.h"

namespace crest {

// NaN: the device does not report it.
struct DeviceState {
  double watts, clock_mhz;
  double memory_bytes;  // a CPU: resident memory of this process; a GPU: used by all processes
  DeviceState();
};

class DeviceWatch {
 public:
  explicit DeviceWatch(const Device& device, double every_seconds = 1);
  // With another reader.
  DeviceWatch(std::function<DeviceState()> read, double every_seconds);
  ~DeviceWatch();
  DeviceWatch(const DeviceWatch&) = delete;
  DeviceWatch& operator=(const DeviceWatch&) = delete;

  // The last state read.
  DeviceState now() const;

 private:
  void watch();

  std::function<DeviceState()> read_;
  double every_seconds_;
  mutable std::mutex mutex_;  // guards the members below
  std::condition_variable wake_;
  DeviceState state_;
  bool stop_ = false;
  Thread thread_;  // last: everything it uses must exist before it
};

}  // namespace crest
