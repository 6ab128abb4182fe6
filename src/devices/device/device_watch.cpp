#include "device/device_watch.h"

#include <chrono>
#include <cmath>
#include <memory>

#include "backend/cuda/nvml.h"
#include "device/conditions.h"
#include "device/energy.h"
#include "host/memory.h"

namespace crest {

namespace {

// Power from a counter of energy is the mean since the last reading.
class PowerMeter {
 public:
  explicit PowerMeter(EnergyPoll poll) : poll_(std::move(poll)) {}
  double watts() {
    const EnergyReading r = poll_();
    double watts = r.watts.value_or(NAN);
    if (r.joules && last_.joules && *r.joules > *last_.joules && r.seconds > last_.seconds)
      watts = (*r.joules - *last_.joules) / (r.seconds - last_.seconds);
    last_ = r;
    return watts;
  }

 private:
  EnergyPoll poll_;
  EnergyReading last_;
};

std::function<DeviceState()> reader_of(const Device& device) {
  auto power = std::make_shared<PowerMeter>(energy_poll(device));
  if (device.kind != "cuda")
    return [power] {
      DeviceState state;
      state.watts = power->watts(), state.clock_mhz = read_cpu_mhz();
      if (int64_t bytes = resident_bytes(); bytes > 0) state.memory_bytes = double(bytes);
      return state;
    };
  std::string bus_id = cuda::pci_bus_id(device.index);
  if (bus_id.empty() || !cuda::Nvml::instance().problem().empty()) return [] { return DeviceState(); };
  return [power, bus_id] {
    DeviceState state;
    const cuda::GpuState gpu = cuda::Nvml::instance().read(bus_id);
    state.watts = power->watts();
    if (std::isnan(state.watts)) state.watts = gpu.power_watts.value_or(NAN);
    state.clock_mhz = gpu.sm_mhz.value_or(NAN);
    if (gpu.memory_used_bytes) state.memory_bytes = double(*gpu.memory_used_bytes);
    return state;
  };
}

}  // namespace

DeviceState::DeviceState() : watts(NAN), clock_mhz(NAN), memory_bytes(NAN) {}

DeviceWatch::DeviceWatch(const Device& device, double every_seconds) : DeviceWatch(reader_of(device), every_seconds) {}

// A device that cannot be read any more (a driver that fails) is no reason to end a run: its state
// is unknown from then on.
DeviceWatch::DeviceWatch(std::function<DeviceState()> read, double every_seconds)
    : read_(std::move(read)),
      every_seconds_(every_seconds),
      thread_([this] { watch(); },
              [this](const std::exception_ptr&) {
                std::lock_guard lock(mutex_);
                state_ = DeviceState();
              }) {}

DeviceWatch::~DeviceWatch() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_one();
}

DeviceState DeviceWatch::now() const {
  std::lock_guard lock(mutex_);
  return state_;
}

void DeviceWatch::watch() {
  while (true) {
    const DeviceState state = read_();
    std::unique_lock lock(mutex_);
    state_ = state;
    if (wake_.wait_for(lock, std::chrono::duration<double>(every_seconds_), [&] { return stop_; })) return;
  }
}

}  // namespace crest
