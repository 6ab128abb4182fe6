#include "device/memory_peak.h"

#include <algorithm>
#include <chrono>

#include "backend/cuda/nvml.h"
#include "host/memory.h"

namespace crest {

MemoryPeak::MemoryPeak(const Device& device) {
  if (device.kind != "cuda") {
    resets_ = reset_peak_resident();
    bytes_.start = resident_bytes();
    if (!resets_) bytes_.missing = "the system does not reset the peak of the resident set";
    return;
  }
  const cuda::Nvml& nvml = cuda::Nvml::instance();
  std::string bus_id = cuda::pci_bus_id(device.index);
  bytes_.missing = !nvml.problem().empty() ? nvml.problem() : bus_id.empty() ? "the GPU has no PCI address" : "";
  if (!bytes_.missing.empty()) return;
  now_ = [&nvml, bus_id] { return nvml.read_memory_used(bus_id); };
  watch();
}

MemoryPeak::MemoryPeak(std::function<std::optional<int64_t>()> now) : now_(std::move(now)) { watch(); }

void MemoryPeak::watch() {
  std::optional<int64_t> first = now_();
  if (!first) {
    bytes_.missing = "the driver does not report the memory in use";
    return;
  }
  bytes_.start = bytes_.peak = bytes_.end = *first;
  auto watch = [this] {
    while (!done_) {
      read();
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
  };
  thread_ = Thread(watch, [this](auto&) { bytes_.missing = "the driver could not be asked"; });
}

void MemoryPeak::read() {
  if (std::optional<int64_t> bytes = now_()) bytes_.peak = std::max(bytes_.peak, *bytes), bytes_.end = *bytes;
}

MemoryPeak::Bytes MemoryPeak::stop() {
  if (thread_.joinable()) {
    done_ = true;
    thread_.join();
    read();
  } else if (resets_) {
    bytes_.end = resident_bytes();
    bytes_.peak = std::max(peak_resident_bytes(), bytes_.end);
  }
  return bytes_;
}

MemoryPeak::~MemoryPeak() { stop(); }

}  // namespace crest
