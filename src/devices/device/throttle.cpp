#include "device/throttle.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "core/timer.h"

namespace crest {

namespace {

constexpr double steal_share = 0.02;  // share of all CPUs' time; above it a sample is marked
constexpr double frequency_share =
    0.90;  // share of the highest clock during the measurement; below it a sample is marked

class CpuPoll {
 public:
  std::set<std::string> operator()() {
    CpuCounters counters = read_cpu_counters();
    std::set<std::string> reasons = cpu_throttles(last_, counters, int(sysconf(_SC_NPROCESSORS_ONLN)));
    last_ = counters;
    double mhz = read_cpu_mhz();
    if (mhz < frequency_share * highest_) reasons.insert("clock");
    if (std::isfinite(mhz)) highest_ = std::max(highest_, mhz);
    return reasons;
  }

 private:
  CpuCounters last_ = read_cpu_counters();
  double highest_ = 0;
};

}  // namespace

std::set<std::string> cpu_throttles(const CpuCounters& before, const CpuCounters& after, int cpus) {
  std::set<std::string> reasons;
  if (after.steal - before.steal > steal_share * (after.seconds - before.seconds) * cpus) reasons.insert("steal");
  if (after.quota_throttles > before.quota_throttles) reasons.insert("quota");
  if (after.thermal_throttles > before.thermal_throttles) reasons.insert("thermal");
  return reasons;
}

ThrottlePoll throttle_poll(const Device& device) {
  if (device.kind != "cuda") return CpuPoll();
  std::string bus_id = cuda::pci_bus_id(device.index);
  if (bus_id.empty() || !cuda::Nvml::instance().problem().empty()) return [] { return std::set<std::string>(); };
  return [bus_id] {
    std::set<std::string> reasons;
    auto bits = cuda::Nvml::instance().read_throttle_bits(bus_id);
    if (bits && cuda::throttled(*bits))
      for (auto& name : cuda::throttle_reasons(*bits)) reasons.insert(name);
    return reasons;
  };
}

ThrottleWatch::ThrottleWatch(ThrottlePoll poll, double interval)
    : poll_(std::move(poll)), interval_(interval), asked_(steady_seconds()) {}

void ThrottleWatch::sampled() {
  ++open_;
  if (steady_seconds() - asked_ >= interval_) ask();
}

void ThrottleWatch::ask() {
  std::set<std::string> reasons = poll_();
  marks_.insert(marks_.end(), open_, !reasons.empty());
  if (open_) reasons_.merge(reasons);
  open_ = 0;
  asked_ = steady_seconds();
}

std::vector<bool> ThrottleWatch::last(size_t count) {
  if (open_) ask();
  if (count > marks_.size()) fail_internal("more samples were requested than were taken", "throttling");
  return {marks_.end() - std::ptrdiff_t(count), marks_.end()};
}

}  // namespace crest
