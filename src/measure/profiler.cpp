#include "measure/profiler.h"

#include "measure/memory.h"
#include "measure/profile_rates.h"
#include "measure/profile_rows.h"

namespace crest {

namespace {

class Measurement {
 public:
  Measurement(BenchCell& cell, const ProfilerOptions& options) : cell_(cell), options_(options) {}

  // In turns, and in turns first, so that neither always follows the other.
  void run() {
    options_.rule.validate();
    records_ = !options_.timers && cell_.record_work(true);
    cell_.record_work(false);
    // A Program's first run loads its kernels, the second captures it; the profiled one is captured on its own.
    for (int i = 0; i < std::max(options_.rule.warmup, records_ ? 2 : 0); ++i) plain();
    profiled();
    for (double spent = 0; !options_.rule.done(plain_, spent);) {
      bool profiled_first = runs.size() % 2;
      if (profiled_first) runs.push_back(profiled());
      double seconds = plain();
      if (!profiled_first) runs.push_back(profiled());
      plain_.add(seconds);
      spent += seconds + runs.back().seconds;
    }
  }

  std::vector<double> plain_ms() const { return plain_.scaled(1e3).values(); }
  bool records() const { return records_; }
  std::vector<ProfiledRun> runs;

 private:
  double plain() {
    if (options_.before_run) options_.before_run();
    return cell_.run();
  }
  ProfiledRun profiled() {
    if (options_.before_run) options_.before_run();
    if (records_) cell_.record_work(true);
    ProfiledRun run;
    run.seconds = cell_.run(&run.traces);
    if (records_) cell_.record_work(false);
    return run;
  }

  BenchCell& cell_;
  const ProfilerOptions& options_;
  Samples plain_;
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
  p.method = measurement.records() ? "cupti" : "timers";
  p.step_ms = measurement.plain_ms();
  summarize_runs(p, measurement.runs);
  p.memory.measured_peak_bytes = cell.held_bytes(0);
  p.memory.device_peak_bytes = session.device.kind == "cuda" ? cell.device_bytes() : peak_resident_bytes();
  return p;
}

}  // namespace crest
