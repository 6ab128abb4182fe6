// Measures a phase of a step with and without a trace and says what each instruction and kernel did.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "bench/bench_cell.h"
#include "device/energy.h"
#include "profile/profile.h"

namespace crest {

struct ProfilerOptions {
  // Of the unprofiled runs; as many profiled ones stand between them, so that both see the same machine.
  StoppingRule rule = {.warmup = 3, .min_samples = 6, .max_samples = 50, .max_seconds = 10, .target_relative_ci = 0.01};
  // Times instruction by instruction, even where the device keeps records of a Program's real run.
  bool timers = false;
  std::vector<ProfileRate> rates;                // given; what is needed besides is measured
  EnergyPoll power;                              // runs up to a second more to measure the power; null: not
  std::function<void()> before_run;              // called before each run; may throw to end the measurement
  std::function<void(const std::string&)> note;  // gets what a user should know
};

// Everything of the profile but recipe, device and environment, which are the caller's words. `rates` must hold what
// rates_needed() of the session says (device_rates of profile/profile_rates.h).
Profile run_profiler(BenchCell& cell, const ProfilerOptions& options);

// The same run by run, for callers that take turns between several cells. The options must outlive it.
class StepProfiler {
 public:
  StepProfiler(BenchCell& cell, const ProfilerOptions& options);
  ~StepProfiler();
  StepProfiler(StepProfiler&&) noexcept;

  void warm_up();  // rule.warmup runs that are not counted, and a profiled one
  void power();    // where the options want it; before anything that counts
  double plain();  // seconds
  void profiled();
  const Samples& samples() const;  // of the plain runs
  double seconds() const;          // of all counted runs
  size_t profiled_runs() const;
  // What run_profiler returns.
  Profile finish();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// One profiled run: wall time and a trace for each call.
struct ProfiledRun {
  double seconds = 0;
  std::vector<StepTrace> traces;
};
// Fills times of rows, kernels, intervals, span, busy, idle and launches from the runs; run_profiler's last step, for
// tests by itself.
void summarize_runs(Profile& profile, const std::vector<ProfiledRun>& runs);

}  // namespace crest
