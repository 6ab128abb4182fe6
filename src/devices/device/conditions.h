// State of a machine that changes during measurements: clocks, power, temperature, throttling,
// other load. Read before and after each measurement and stored with it. Unreported values are NaN
// or negative, and null in JSON.
#pragma once
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "backend/backend.h"
#include "backend/cuda/nvml.h"

namespace crest {

// Counters that only grow; the difference of two readings describes the time between them.
struct CpuCounters {
  double seconds = 0;             // steady clock
  double busy = 0;                // busy seconds of all CPUs, of all processes
  double own = 0;                 // CPU seconds of this process; in Conditions, of all ranks here
  double steal = 0;               // seconds of CPU time lost to other virtual machines
  int64_t quota_throttles = 0;    // periods with the control group's quota used up
  int64_t thermal_throttles = 0;  // events reported by the CPUs
};
CpuCounters read_cpu_counters(const std::string& root = "");
// Mean frequency of the CPUs of this process; NaN if unknown.
double read_cpu_mhz(const std::string& root = "");

// Counter of the packages, in joules; NaN where it may not be read.
double read_cpu_energy(const std::string& root = "");

// Measurements that were not interleaved are compared only if their other_load is at most this.
inline constexpr double quiet_cpus = 0.2;

struct Conditions {
  std::string time_utc;
  CpuCounters cpu;
  double cpu_mhz, cpu_max_mhz, cpu_temperature_c;
  double cpu_energy_joules;  // counter of the packages; most systems show it to administrators only
  double load_average = 0;   // one minute
  // CPUs kept busy by other processes. With an earlier reading: exact, between the two. Without:
  // the load average minus this process's own share.
  double other_load = 0;
  std::optional<cuda::GpuState> gpu;
  std::string gpu_problem;  // why GPU values are missing; "" on the CPU
};

Conditions read_conditions(const Device& device, const Conditions* before = nullptr, const std::string& root = "");
nlohmann::ordered_json to_json(const Conditions& conditions);

// RunRecord::environment: the machine (host/environment.h) with the device's libraries, and the
// given conditions under "conditions".
nlohmann::ordered_json environment_json(const Device& device, const Conditions& conditions);
// RunRecord::environment_after: {"conditions": ...} at the end of the measurement begun with
// `before`.
nlohmann::ordered_json environment_after_json(const Device& device, const Conditions& before);

}  // namespace crest
