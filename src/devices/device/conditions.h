// What changes while a machine is measured: clocks, power, temperature, throttling, other load.
// Read before and after each measurement and stored with it. Values that a machine does not report
// are NaN or negative, and null in JSON.
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
  double steal = 0;               // seconds in which another virtual machine used a CPU that this one wanted
  int64_t quota_throttles = 0;    // periods in which the control group used up its quota
  int64_t thermal_throttles = 0;  // events that the CPUs report
};
CpuCounters read_cpu_counters(const std::string& root = "");
// Mean frequency of the CPUs that this process may use; NaN if unknown.
double read_cpu_mhz(const std::string& root = "");

// Counter of the packages, in joules; NaN where it may not be read.
double read_cpu_energy(const std::string& root = "");

struct Conditions {
  std::string time_utc;
  CpuCounters cpu;
  double cpu_mhz, cpu_max_mhz, cpu_temperature_c;
  double cpu_energy_joules;  // counter of the packages; most systems show it to administrators only
  double load_average = 0;   // one minute
  // CPUs that other processes keep busy. With an earlier reading: exact, between the two. Without:
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
// RunRecord::environment_after: {"conditions": ...} at the end of the measurement that began with
// `before`.
nlohmann::ordered_json environment_after_json(const Device& device, const Conditions& before);

}  // namespace crest
