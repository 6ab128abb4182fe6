#include "measure/profiler.h"

#include <chrono>
#include <cmath>
#include <optional>

#include "core/error.h"
#include "measure/conditions.h"
#include "measure/memory.h"
#include "measure/profile_rows.h"
#include "measure/throttle.h"

namespace crest {

namespace {

class Measurement {
 public:
  Measurement(BenchCell& cell, const ProfilerOptions& options)
      : cell_(cell), options_(options), device_(cell.session().device), throttle_(throttle_poll(device_)) {}

  // In turns, and in turns first, so that neither always follows the other.
  void run() {
    options_.rule.validate();
    find_method();
    // A Program's first run loads its kernels, the second captures it; the profiled one is captured on its own.
    for (int i = 0; i < std::max(options_.rule.warmup, records_ ? 2 : 0); ++i) plain();
    profiled();
    for (double spent = 0; !options_.rule.done(plain_, spent);) {
      bool profiled_first = runs_.size() % 2;
      if (profiled_first) runs_.push_back(profiled());
      double seconds = plain();
      if (!profiled_first) runs_.push_back(profiled());
      plain_.add(seconds);
      spent += seconds + runs_.back().seconds;
    }
  }

  void tell(Profile& p) {
    p.method = records_ ? "cupti" : "timers";
    p.step_ms = plain_.scaled(1e3).values();
    std::vector<bool> marks = throttle_.last(plain_run_.size());
    for (size_t i = 0; i < marks.size(); ++i)
      if (plain_run_[i]) p.throttled.push_back(marks[i]);
    p.throttled.erase(p.throttled.begin(), p.throttled.end() - std::ptrdiff_t(p.step_ms.size()));  // warm-up
    p.throttle_reasons.assign(throttle_.reasons().begin(), throttle_.reasons().end());
    if (!clocks_.empty()) p.clock_mhz = clocks_.median();
    summarize_runs(p, runs_);
  }

 private:
  // A device whose records cannot be had (no library, another profiler holds it) is timed instead.
  void find_method() {
    if (options_.timers) return;
    try {
      records_ = cell_.record_work(true);
      cell_.record_work(false);
    } catch (const Error& e) {
      if (e.code() != Exit::failed) throw;
      if (options_.note) options_.note(std::string("instructions are timed one by one: ") + e.problem());
    }
  }
  double plain() {
    if (options_.before_run) options_.before_run();
    double seconds = cell_.run();
    finished_run(true);
    return seconds;
  }
  ProfiledRun profiled() {
    if (options_.before_run) options_.before_run();
    if (records_) cell_.record_work(true);
    ProfiledRun run;
    run.seconds = cell_.run(&run.traces);
    if (records_) cell_.record_work(false);
    finished_run(false);
    return run;
  }
  // Outside of all times. The clock right after the work is the clock of the work.
  void finished_run(bool is_plain) {
    plain_run_.push_back(is_plain);
    throttle_.sampled();
    if (time_ && std::chrono::steady_clock::now() - *time_ < std::chrono::milliseconds(100)) return;
    Conditions now = read_conditions(device_);
    double mhz = now.gpu ? now.gpu->sm_mhz.value_or(NAN) : now.cpu_mhz;
    if (std::isfinite(mhz)) clocks_.add(mhz);
    time_ = std::chrono::steady_clock::now();
  }

  BenchCell& cell_;
  const ProfilerOptions& options_;
  const Device& device_;
  ThrottleWatch throttle_;
  Samples plain_, clocks_;
  std::vector<ProfiledRun> runs_;
  std::vector<bool> plain_run_;                                // of each run, the first one first: was it a plain one
  std::optional<std::chrono::steady_clock::time_point> time_;  // of the last reading of the clock
  bool records_ = false;
};

}  // namespace

Profile run_profiler(BenchCell& cell, const ProfilerOptions& options) {
  const CompiledSession& session = cell.session();
  Profile p;
  p.phase = name(cell.phase());
  p.tokens = phase_tokens(session.recipe, cell.phase());
  p.model_flops = phase_flops(session, cell.phase(), FlopsConvention::palm);
  describe_session(p, session, phase_calls(session, cell.phase()));
  p.rates = options.rates;
  set_floors(p);
  Measurement measurement(cell, options);
  measurement.run();
  measurement.tell(p);
  p.memory.measured_peak_bytes = cell.held_bytes(0);
  p.memory.device_peak_bytes = session.device.kind == "cuda" ? cell.device_bytes() : peak_resident_bytes();
  return p;
}

}  // namespace crest
