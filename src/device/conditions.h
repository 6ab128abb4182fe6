// What changes while a machine is measured: clocks, power, temperature, throttling, other load. Read before and after
// each measurement and stored with it. What a machine does not tell is NaN or negative, and null as JSON.
#pragma once
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "backend/backend.h"
#include "backend/cuda/nvml.h"

namespace crest {

// Counters that only grow; differences of two readings say what happened between them.
struct CpuCounters {
  double seconds = 0;             // steady clock
  double busy = 0;                // seconds of all CPUs, of all processes
  double own = 0;                 // CPU seconds of this process
  double steal = 0;               // seconds in which another virtual machine had the CPU that we wanted
  int64_t quota_throttles = 0;    // periods in which the control group's quota ran out
  int64_t thermal_throttles = 0;  // events that the CPUs report
};
CpuCounters read_cpu_counters(const std::string& root = "");
// Mean frequency of the CPUs that this process may use; NaN when unknown.
double read_cpu_mhz(const std::string& root = "");

// Counter of the packages, in joules; NaN where it may not be read.
double read_cpu_energy(const std::string& root = "");

struct Conditions {
  std::string time_utc;
  CpuCounters cpu;
  double cpu_mhz, cpu_max_mhz, cpu_temperature_c;
  double cpu_energy_joules;  // counter of the packages; most systems show it to the administrator only
  double load_average = 0;   // one minute
  // CPUs that other processes keep busy. With an earlier reading: exactly, between the two. Without: the load average
  // less what this process itself adds to it.
  double other_load = 0;
  std::optional<cuda::GpuState> gpu;
  std::string gpu_problem;  // why there are no figures of the GPU; "" on the CPU
};

Conditions read_conditions(const Device& device, const Conditions* before = nullptr, const std::string& root = "");
nlohmann::ordered_json to_json(const Conditions& conditions);

// RunRecord::environment: the machine (host/environment.h) with the device's libraries, and under "conditions" what
// is given.
nlohmann::ordered_json environment_json(const Device& device, const Conditions& conditions);
// RunRecord::environment_after: {"conditions": ...} at the end of what `before` began.
nlohmann::ordered_json environment_after_json(const Device& device, const Conditions& before);

}  // namespace crest
