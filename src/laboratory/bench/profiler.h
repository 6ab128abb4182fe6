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
  // For the unprofiled runs; equally many profiled ones are interleaved, so both see the same
  // machine state.
  StoppingRule rule = {.warmup = 3, .min_samples = 6, .max_samples = 50, .max_seconds = 10, .target_relative_ci = 0.01};
  // Time instruction by instruction even where the device can record a Program's real run.
  bool timers = false;
  std::vector<ProfileRate> rates;                // given; missing ones are measured
  EnergyPoll power;                              // runs up to a second more to measure the power; null: not
  std::function<void()> before_run;              // called before each run; may throw to end the measurement
  std::function<void(const std::string&)> note;  // receives notices for the user
};

// Fills the profile except recipe, device and environment, which the caller sets. `rates` must
// contain those that rates_needed() of the session lists (device_rates in profile/profile_rates.h).
Profile run_profiler(PhaseRunner& runner, const ProfilerOptions& options);

// The same, run by run, for callers that interleave several runners. The options must outlive it.
class StepProfiler {
 public:
  StepProfiler(PhaseRunner& runner, const ProfilerOptions& options);
  ~StepProfiler();
  StepProfiler(StepProfiler&&) noexcept;

  void warm_up();  // rule.warmup discarded runs, and a profiled one
  void power();    // if the options ask for it; before anything that counts
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

// Fills times of rows, kernels, intervals, span, busy, idle and launches from the runs. The last
// step of run_profiler, separate for tests.
void summarize_runs(Profile& profile, const std::vector<ProfiledRun>& runs);

}  // namespace crest
