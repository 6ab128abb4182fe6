#include "bench/profiler.h"

#include <cmath>
#include <optional>

#include "core/error.h"
#include "core/timer.h"
#include "device/conditions.h"
#include "device/throttle.h"
#include "host/memory.h"
#include "profile/profile_rows.h"

namespace crest {

struct StepProfiler::Impl {
  Impl(PhaseRunner& the_runner, const ProfilerOptions& the_options)
      : runner(the_runner),
        options(the_options),
        device(runner.session().device),
        throttle(throttle_poll(device)),
        records(has_records()) {}

  // Uses timers if the device cannot record (no library, or another profiler is active).
  bool has_records() {
    if (options.timers) return false;
    try {
      return runner.has_records();
    } catch (const Error& e) {
      if (e.code() != Exit::failed) throw;
      if (options.note) options.note("timing instructions one by one: " + e.problem());
      return false;
    }
  }

  double plain() {
    if (options.before_run) options.before_run();
    double seconds = runner.run();
    finished_run(true);
    return seconds;
  }
  ProfiledRun profiled() {
    if (options.before_run) options.before_run();
    ProfiledRun run = runner.run_profiled(records);
    finished_run(false);
    return run;
  }
  // Untimed. Right after a run the clock still has its working frequency.
  void finished_run(bool is_plain) {
    plain_run.push_back(is_plain);
    throttle.sampled();
    if (clock_read && clock_read->seconds() < 0.1) return;
    Conditions now = read_conditions(device);
    double mhz = now.gpu ? now.gpu->sm_mhz.value_or(NAN) : now.cpu_mhz;
    if (std::isfinite(mhz)) clocks.add(mhz);
    clock_read.emplace();
  }

  void tell(Profile& p) {
    p.method = records ? "cupti" : "timers";
    p.step_ms = samples.scaled(1e3).values();
    std::vector<bool> marks = throttle.last(plain_run.size());
    for (size_t i = 0; i < marks.size(); ++i)
      if (plain_run[i]) p.throttled.push_back(marks[i]);
    p.throttled.erase(p.throttled.begin(), p.throttled.end() - std::ptrdiff_t(p.step_ms.size()));  // warm-up
    p.throttle_reasons.assign(throttle.reasons().begin(), throttle.reasons().end());
    if (!clocks.empty()) p.clock_mhz = clocks.median();
    p.power_w = watts;
    summarize_runs(p, runs);
    p.ranks = runner.rank_times(runs, p.step_ms.size(), records);
    if (auto times = runner.stage_times(int(p.step_ms.size()))) p.pipeline = to_json(*times);
  }

  PhaseRunner& runner;
  const ProfilerOptions& options;
  const Device& device;
  ThrottleWatch throttle;
  bool records;
  Samples samples, clocks;
  double seconds = 0;
  std::optional<double> watts;
  std::vector<ProfiledRun> runs;
  std::vector<bool> plain_run;      // for each run in order: without a trace?
  std::optional<Timer> clock_read;  // since the last reading of the clock frequency
};

StepProfiler::StepProfiler(PhaseRunner& runner, const ProfilerOptions& options)
    : impl_(std::make_unique<Impl>(runner, options)) {}
StepProfiler::~StepProfiler() = default;
StepProfiler::StepProfiler(StepProfiler&&) noexcept = default;

void StepProfiler::warm_up() {
  // The first run of a Program loads its kernels, the second captures it. Profiled runs are
  // captured separately. Slow steps need few runs: warm-up ends at a quarter of the time limit.
  const Timer timer;
  const int least = impl_->records ? 2 : 1, wanted = std::max(impl_->options.rule.warmup, impl_->records ? 2 : 0);
  for (int i = 0; i < wanted && (i < least || timer.seconds() < impl_->options.rule.max_seconds / 4); ++i)
    impl_->plain();
  // Timers need no warm-up.
  if (impl_->records || timer.seconds() < impl_->options.rule.max_seconds / 4) impl_->profiled();
}

void StepProfiler::power() {
  if (!impl_->options.power) return;
  EnergyWatch energy(impl_->options.power);
  energy.complete([this] { impl_->plain(); });
  impl_->watts = energy.energy().watts();
}

double StepProfiler::plain() {
  double seconds = impl_->plain();
  impl_->samples.add(seconds);
  impl_->seconds += seconds;
  return seconds;
}

void StepProfiler::profiled() {
  impl_->runs.push_back(impl_->profiled());
  impl_->seconds += impl_->runs.back().seconds;
}

const Samples& StepProfiler::samples() const { return impl_->samples; }
double StepProfiler::seconds() const { return impl_->seconds; }
size_t StepProfiler::profiled_runs() const { return impl_->runs.size(); }

Profile StepProfiler::finish() {
  PhaseRunner& runner = impl_->runner;
  const CompiledSession& session = runner.session();
  Profile p;
  p.phase = name(runner.phase());
  p.tokens = phase_tokens(session.recipe, runner.phase());
  p.model_flops = phase_flops(session, runner.phase(), FlopsConvention::palm);
  describe_session(p, session, phase_calls(session, runner.phase()));
  p.rates = impl_->options.rates;
  set_floors(p);
  impl_->tell(p);
  p.memory.measured_peak_bytes = runner.held_bytes();
  p.memory.device_peak_bytes = session.device.kind == "cuda" ? runner.device_bytes() : peak_resident_bytes();
  return p;
}

// Plain and profiled runs alternate, and so does their order, so neither always comes first.
Profile run_profiler(PhaseRunner& runner, const ProfilerOptions& options) {
  options.rule.validate();
  StepProfiler profiler(runner, options);
  const Timer timer;
  const bool limited = options.rule.samples_at_limit > 0;
  profiler.warm_up();
  if (!limited || timer.seconds() < options.rule.max_seconds) profiler.power();
  while (!options.rule.done(profiler.samples(),
                            limited ? std::max(timer.seconds(), profiler.seconds()) : profiler.seconds())) {
    bool profiled_first = profiler.profiled_runs() % 2;
    if (profiled_first) profiler.profiled();
    profiler.plain();
    if (!profiled_first) profiler.profiled();
  }
  return profiler.finish();
}

}  // namespace crest
