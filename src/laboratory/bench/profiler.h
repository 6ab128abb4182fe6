// Measures a phase of a step with and without a trace, and attributes time to instructions and
// kernels.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "bench/phase_runner.h"
#include "device/energy.h"
#include "profile/profile.h"

namespace crest {

struct ProfilerOptions {
  // For the plain runs. Each has a profiled run next to it, so both see the same machine.
  StoppingRule rule = {.warmup = 3, .min_samples = 6, .max_samples = 50, .max_seconds = 10, .target_relative_ci = 0.01};
  // Time each instruction alone, even if the device can record a real run of a Program.
  bool timers = false;
  std::vector<ProfileRate> rates;                // as given; missing rates are measured
  EnergyPoll power;                              // up to a second of extra runs measures the power; null: none
  std::function<void()> before_run;              // may throw to end the measurement
  std::function<void(const std::string&)> note;  // receives notices for the user
};

// Fills the profile except recipe, device and environment; the caller sets these. `rates` must
// contain all of the session's rates_needed() (device_rates in profile/profile_rates.h).
Profile run_profiler(PhaseRunner& runner, const ProfilerOptions& options);

// The same, one run at a time, to interleave several runners. The options must outlive it.
class StepProfiler {
 public:
  StepProfiler(PhaseRunner& runner, const ProfilerOptions& options);
  ~StepProfiler();
  StepProfiler(StepProfiler&&) noexcept;

  void warm_up();  // rule.warmup discarded runs, and a profiled one
  void power();    // if requested; call it before the samples
  double plain();  // seconds
  void profiled();
  const Samples& samples() const;  // of the plain runs
  double seconds() const;          // of all recorded runs
  size_t profiled_runs() const;
  // The result of run_profiler.
  Profile finish();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Fills times of rows, kernels, intervals, span, busy, idle and launches from the runs. This is the
// last step of run_profiler, public for tests.
void summarize_runs(Profile& profile, const std::vector<ProfiledRun>& runs);

}  // namespace crest
