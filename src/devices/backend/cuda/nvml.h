// NVIDIA's management library: clocks, power, temperature, throttling and other load of a GPU. It
// comes with the driver and is opened at run time; machines without it get `problem` instead of
// figures. Nothing here makes a CUDA context.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace crest::cuda {

// The state of the GPU now. A value is absent if the device or its driver does not report it.
struct GpuState {
  std::optional<double> sm_mhz, sm_max_mhz, memory_mhz, memory_max_mhz;
  std::optional<double> power_watts, power_limit_watts, temperature_c, utilization_percent;
  std::optional<uint64_t> throttle_bits;     // see throttle_reasons()
  std::optional<int64_t> memory_used_bytes;  // by all processes and the driver
  bool own_listed = false;                   // the driver lists this process (in a container it often does not)
  int64_t own_bytes = 0;                     // of this process, its CUDA context included; where it is listed
  std::optional<int> other_processes;        // computing on the GPU; absent: the driver does not list processes
  std::optional<int64_t> other_processes_bytes;
};

// Names of the bits of a driver's reasons for lower clocks: "power_cap", "thermal", ... Idle clocks
// and user-set clocks are named, too, but do not throttle().
std::vector<std::string> throttle_reasons(uint64_t bits);
// Whether the clocks are lowered by power or temperature.
bool throttled(uint64_t bits);

class Nvml {
 public:
  // file: libnvidia-ml.so.1 unless a test says otherwise.
  explicit Nvml(const std::string& file = "libnvidia-ml.so.1");
  ~Nvml();
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;
  // One for the process, opened when it is first asked for.
  static const Nvml& instance();

  const std::string& problem() const { return problem_; }  // why there are no figures; empty: there are
  std::string driver_version() const;                      // "580.65.06"; "" when unknown
  // bus_id: the PCI address of the GPU (pci_bus_id below), since CUDA and the driver number GPUs
  // differently. Throws when the library has no such device.
  GpuState read(const std::string& bus_id) const;
  // throttle_bits alone; absent when the driver does not tell. Cheaper: for use between samples.
  std::optional<uint64_t> read_throttle_bits(const std::string& bus_id) const;
  // The GPU's counter, which only grows, and its power now; both for the whole board. Cheap as
  // well.
  std::optional<double> read_energy_joules(const std::string& bus_id) const;
  std::optional<double> read_power_watts(const std::string& bus_id) const;
  // The link of two GPUs: "NVLink", or PCIe and its path; "" if unknown.
  std::string link(const std::string& bus_id, const std::string& other) const;
  // GpuState::memory_used_bytes alone.
  std::optional<int64_t> read_memory_used(const std::string& bus_id) const;

 private:
  struct Api;
  void* device(const std::string& bus_id) const;
  std::unique_ptr<Api> api_;
  std::string problem_;
};

// "0000:17:00.0" of CUDA's device number `index`; "" in a build without CUDA, or when there is no
// such device.
std::string pci_bus_id(int index);
// The link of CUDA's devices a and b; "" if unknown.
std::string link_between(int a, int b);
// Bytes of the GPU's last-level cache; 0 when unknown.
int64_t l2_cache_bytes(int index);

// GPU memory held by this process besides Crest's own count (`counted`: arenas): its CUDA context
// with code, library handles and graphs. cudaMemGetInfo cannot tell, since calling it makes the
// context. Absent if the driver reports neither the process' memory nor the GPU's used memory; if
// it does not list this process, other processes that come or go meanwhile are counted in.
struct ContextBytes {
  std::optional<int64_t> start;  // when the context had been made and nothing had run
  std::optional<int64_t> now;
};
ContextBytes context_bytes(int index, int64_t counted);
// Calls make(), which makes the context of the GPU; the first call notes the used memory before and
// after.
void watch_context(int index, const std::function<void()>& make);

}  // namespace crest::cuda
