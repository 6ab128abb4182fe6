#include "backend/cuda/nvml.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <mutex>

#include "core/error.h"
#if CREST_HAVE_CUDA
#include <cuda_runtime.h>
#endif

namespace crest::cuda {

namespace {

// Of NVML's documented interface (NVML API reference), as its header may be missing where Crest is
// built.
constexpr int success = 0, insufficient_size = 7;
constexpr unsigned clock_sm = 1, clock_memory = 2, sensor_gpu = 0;
constexpr unsigned long long not_available = ~0ull;

struct Utilization {
  unsigned gpu, memory;
};
struct Memory {
  unsigned long long total, free, used;
};
struct Process {
  unsigned pid;
  unsigned long long used;
  unsigned gpu_instance, compute_instance;
};

struct Reason {
  uint64_t bit;
  const char* name;
  bool throttles;
};
constexpr Reason reasons[] = {{0x1, "idle", false},
                              {0x2, "application_clocks", false},
                              {0x4, "power_cap", true},
                              {0x8, "hardware_slowdown", true},
                              {0x10, "sync_boost", false},
                              {0x20, "thermal", true},
                              {0x40, "hardware_thermal", true},
                              {0x80, "power_brake", true},
                              {0x100, "display_clocks", false}};

}  // namespace

std::vector<std::string> throttle_reasons(uint64_t bits) {
  std::vector<std::string> names;
  for (auto& r : reasons)
    if (bits & r.bit) names.emplace_back(r.name), bits &= ~r.bit;
  if (bits) names.push_back(fmt::format("unknown_{:x}", bits));
  return names;
}

bool throttled(uint64_t bits) {
  for (auto& r : reasons)
    if ((bits & r.bit) && r.throttles) return true;
  return false;
}

// Null: this library does not have the function.
struct Nvml::Api {
  void* library = nullptr;
  int (*init)() = nullptr;
  int (*shutdown)() = nullptr;
  const char* (*error_string)(int) = nullptr;
  int (*driver_version)(char*, unsigned) = nullptr;
  int (*by_bus_id)(const char*, void**) = nullptr;
  int (*clock)(void*, unsigned, unsigned*) = nullptr;
  int (*max_clock)(void*, unsigned, unsigned*) = nullptr;
  int (*power)(void*, unsigned*) = nullptr;
  int (*energy)(void*, unsigned long long*) = nullptr;
  int (*power_limit)(void*, unsigned*) = nullptr;
  int (*temperature)(void*, unsigned, unsigned*) = nullptr;
  int (*throttle)(void*, unsigned long long*) = nullptr;
  int (*utilization)(void*, Utilization*) = nullptr;
  int (*memory)(void*, Memory*) = nullptr;
  int (*processes)(void*, unsigned*, Process*) = nullptr;
  int (*peer)(void*, void*, unsigned, unsigned*) = nullptr;
  int (*ancestor)(void*, void*, unsigned*) = nullptr;

  // The first name known to the library: newer versions rename functions.
  template <class F>
  void find(F& function, std::initializer_list<const char*> names) {
    for (const char* name : names)
      if (!function) function = reinterpret_cast<F>(dlsym(library, name));
  }
  std::string text(int code) const {
    return error_string && error_string(code) ? error_string(code) : fmt::format("error {}", code);
  }
};

Nvml::Nvml(const std::string& file) : api_(std::make_unique<Api>()) {
  Api& a = *api_;
  a.library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!a.library) {
    const char* why = dlerror();
    problem_ = fmt::format("{} cannot be opened: {}", file, why ? why : "unknown reason");
    return;
  }
  a.find(a.init, {"nvmlInit_v2", "nvmlInit"});
  a.find(a.shutdown, {"nvmlShutdown"});
  a.find(a.error_string, {"nvmlErrorString"});
  a.find(a.driver_version, {"nvmlSystemGetDriverVersion"});
  a.find(a.by_bus_id, {"nvmlDeviceGetHandleByPciBusId_v2", "nvmlDeviceGetHandleByPciBusId"});
  a.find(a.clock, {"nvmlDeviceGetClockInfo"});
  a.find(a.max_clock, {"nvmlDeviceGetMaxClockInfo"});
  a.find(a.power, {"nvmlDeviceGetPowerUsage"});
  a.find(a.energy, {"nvmlDeviceGetTotalEnergyConsumption"});
  a.find(a.power_limit, {"nvmlDeviceGetEnforcedPowerLimit"});
  a.find(a.temperature, {"nvmlDeviceGetTemperature"});
  a.find(a.throttle, {"nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons"});
  a.find(a.utilization, {"nvmlDeviceGetUtilizationRates"});
  a.find(a.memory, {"nvmlDeviceGetMemoryInfo"});
  a.find(a.processes, {"nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetComputeRunningProcesses_v2"});
  a.find(a.peer, {"nvmlDeviceGetP2PStatus"});
  a.find(a.ancestor, {"nvmlDeviceGetTopologyCommonAncestor"});
  if (!a.init || !a.by_bus_id)
    problem_ = fmt::format("{} is not NVIDIA's management library", file);
  else if (int code = a.init(); code != success)
    problem_ = fmt::format("{} does not start: {}", file, a.text(code));
  if (!problem_.empty()) dlclose(a.library), a.library = nullptr;
}

Nvml::~Nvml() {
  if (!api_->library) return;
  if (api_->shutdown) api_->shutdown();
  dlclose(api_->library);
}

const Nvml& Nvml::instance() {
  static const Nvml nvml;
  return nvml;
}

std::string Nvml::driver_version() const {
  char text[96] = {};
  bool known = problem_.empty() && api_->driver_version && api_->driver_version(text, sizeof text - 1) == success;
  return known ? text : "";
}

void* Nvml::device(const std::string& bus_id) const {
  if (!problem_.empty()) fail(problem_);
  void* handle = nullptr;
  if (int code = api_->by_bus_id(bus_id.c_str(), &handle); code != success)
    fail(fmt::format("the driver has no GPU at {}: {}", bus_id, api_->text(code)), "NVML");
  return handle;
}

// A function of a device with one unsigned result; absent if it is missing or fails.
template <class F, class... A>
static std::optional<double> ask(F function, double scale, A... arguments) {
  unsigned value = 0;
  if (!function || function(arguments..., &value) != success) return std::nullopt;
  return value * scale;
}

static std::vector<Process> list_processes(int (*list)(void*, unsigned*, Process*), void* device, bool& known) {
  std::vector<Process> rows(16);
  // The list may grow between two calls.
  for (int attempt = 0; list && attempt < 4; ++attempt) {
    auto count = unsigned(rows.size());
    int code = list(device, &count, rows.data());
    known = code == success;
    if (known) rows.resize(std::min<size_t>(count, rows.size()));
    if (code != insufficient_size) break;
    rows.resize(size_t(count) + 16);
  }
  if (!known) rows.clear();
  return rows;
}

GpuState Nvml::read(const std::string& bus_id) const {
  void* d = device(bus_id);
  const Api& a = *api_;
  GpuState s;
  s.sm_mhz = ask(a.clock, 1, d, clock_sm), s.sm_max_mhz = ask(a.max_clock, 1, d, clock_sm);
  s.memory_mhz = ask(a.clock, 1, d, clock_memory), s.memory_max_mhz = ask(a.max_clock, 1, d, clock_memory);
  s.power_watts = ask(a.power, 1e-3, d), s.power_limit_watts = ask(a.power_limit, 1e-3, d);
  s.temperature_c = ask(a.temperature, 1, d, sensor_gpu);
  s.throttle_bits = read_throttle_bits(bus_id);
  if (Utilization u{}; a.utilization && a.utilization(d, &u) == success) s.utilization_percent = u.gpu;
  if (Memory m{}; a.memory && a.memory(d, &m) == success) s.memory_used_bytes = int64_t(m.used);
  bool known = false;
  auto processes = list_processes(a.processes, d, known);
  if (!known) return s;
  s.other_processes = 0, s.other_processes_bytes = 0;
  for (auto& p : processes) {
    int64_t bytes = p.used == not_available ? 0 : int64_t(p.used);
    if (p.pid == unsigned(getpid()))
      s.own_listed = true, s.own_bytes += bytes;
    else
      ++*s.other_processes, *s.other_processes_bytes += bytes;
  }
  return s;
}

std::optional<uint64_t> Nvml::read_throttle_bits(const std::string& bus_id) const {
  unsigned long long bits = 0;
  if (!api_->throttle || api_->throttle(device(bus_id), &bits) != success) return std::nullopt;
  return bits;
}

std::optional<double> Nvml::read_energy_joules(const std::string& bus_id) const {
  unsigned long long millijoules = 0;
  if (!api_->energy || api_->energy(device(bus_id), &millijoules) != success) return std::nullopt;
  return double(millijoules) * 1e-3;
}

std::optional<double> Nvml::read_power_watts(const std::string& bus_id) const {
  return ask(api_->power, 1e-3, device(bus_id));
}

std::string Nvml::link(const std::string& bus_id, const std::string& other) const {
  constexpr unsigned by_nvlink = 2;
  constexpr double works = 0;
  void *a = device(bus_id), *b = device(other);
  if (ask(api_->peer, 1, a, b, by_nvlink) == works) return "NVLink";
  auto level = ask(api_->ancestor, 1, a, b);
  if (!level) return "";
  return *level <= 10   ? "PCIe, one switch"
         : *level <= 20 ? "PCIe, several switches"
         : *level <= 30 ? "PCIe, one host bridge"
         : *level <= 40 ? "PCIe, one NUMA node"
                        : "PCIe, across NUMA nodes";
}

std::optional<int64_t> Nvml::read_memory_used(const std::string& bus_id) const {
  Memory m = {};
  void* d = device(bus_id);
  return api_->memory && api_->memory(d, &m) == success ? std::optional(int64_t(m.used)) : std::nullopt;
}

#if CREST_HAVE_CUDA
std::string pci_bus_id(int index) {
  char text[32] = {};
  return cudaDeviceGetPCIBusId(text, sizeof text, index) == cudaSuccess ? text : "";
}

int64_t l2_cache_bytes(int index) {
  int bytes = 0;
  return cudaDeviceGetAttribute(&bytes, cudaDevAttrL2CacheSize, index) == cudaSuccess ? bytes : 0;
}
#else
std::string pci_bus_id(int) { return ""; }
int64_t l2_cache_bytes(int) { return 0; }
#endif

namespace {

GpuState state_of(int index) {
  const Nvml& nvml = Nvml::instance();
  std::string bus_id = pci_bus_id(index);
  if (!nvml.problem().empty() || bus_id.empty()) return {};
  try {
    return nvml.read(bus_id);
  } catch (const Error&) {  // figures not needed to run
    return {};
  }
}

struct Watched {
  std::optional<int64_t> before, after;  // bytes used of the GPU
};
std::mutex watched_mutex;
std::map<int, Watched> watched;  // by GPU

}  // namespace

std::string link_between(int a, int b) {
  const Nvml& nvml = Nvml::instance();
  std::string first = pci_bus_id(a), second = pci_bus_id(b);
  if (!nvml.problem().empty() || first.empty() || second.empty()) return "";
  try {
    return nvml.link(first, second);
  } catch (const Error&) {
    return "";
  }
}

void watch_context(int index, const std::function<void()>& make) {
  std::lock_guard lock(watched_mutex);
  auto [it, first] = watched.try_emplace(index);
  if (!first) return make();
  it->second.before = state_of(index).memory_used_bytes;
  make();
  it->second.after = state_of(index).memory_used_bytes;
}

ContextBytes context_bytes(int index, int64_t counted) {
  std::lock_guard lock(watched_mutex);
  Watched w = watched[index];
  ContextBytes c;
  if (w.before && w.after) c.start = std::max<int64_t>(0, *w.after - *w.before);
  GpuState s = state_of(index);
  if (s.own_listed && s.own_bytes > 0)
    c.now = std::max<int64_t>(0, s.own_bytes - counted);
  else if (w.before && s.memory_used_bytes)
    c.now = std::max<int64_t>(0, *s.memory_used_bytes - *w.before - counted);
  return c;
}

}  // namespace crest::cuda
