#include "bench/profile_run.h"

#include <fmt/format.h>

#include <algorithm>

#include "bench/bench_measure.h"
#include "comm/rank_group.h"
#include "core/error.h"
#include "core/text.h"
#include "core/to_stderr.h"
#include "host/memory.h"
#include "host/stop_signal.h"
#include "plan/plan_json.h"
#include "plan/recipe_settings.h"
#include "plan/stage_plans.h"
#include "plan/what_fits.h"
#include "profile/profile_rates.h"
#include "profile/profile_rows.h"
#include "profile/profile_summary.h"
#include "store/new_record.h"

namespace crest {

namespace {

void check_interrupt() {
  if (StopSignal::requested()) throw Error(Exit::interrupted, "interrupted", "crest profile");
}

void say(const std::string& line) { to_stderr("{}\n", printable(line, 400)); }

}  // namespace

ProfileRun::ProfileRun(ProfileTask task) : task_(std::move(task)) {
  parts_.begin("compile");
  const int stage = task_.group ? stage_of_rank(task_.recipe, task_.group->rank()) : 0;
  session_ = compile_phase(task_.recipe, task_.device, task_.phase, {.stage = stage});
  check_fits(session_, task_.limit / task_.recipe.data_parallel);
  flops_per_token_ = executed_per_token(session_);
  if (task_.group && !task_.group->leads()) return;
  auto compile = [&](const Recipe& r) {
    check_interrupt();
    return largest_stage(compile_phase(r, task_.device, task_.phase, {.verify = false}), {.verify = false});
  };
  alternatives_ = memory_alternatives(largest_stage(session_, {.verify = false}), compile,
                                      [&](auto& s) { return executed_per_token(s); });
}

double ProfileRun::executed_per_token(const CompiledSession& s) const {
  return phase_flops(s, task_.phase, FlopsConvention::executed) / double(phase_tokens(s.recipe, task_.phase));
}

Profile ProfileRun::measure() {
  recorder_ = task_.store.open();
  Conditions before = read_conditions(task_.device);
  RunRecord record = new_record("profile", task_.store.name, task_.recipe, task_.device, name(task_.phase), before);
  recorder_.begin(record);
  recorder_.set_document(record, "plan", plan_document(session_));
  Profile profile;
  try {
    profile = profiled();
  } catch (const Error& e) {
    record.status = e.code() == Exit::interrupted    ? "interrupted"
                    : e.code() == Exit::does_not_fit ? "out_of_memory"
                                                     : "failed";
    record.error = e.what();
    recorder_.finish(record);
    throw;
  }
  profile.recipe = record.recipe;
  profile.device = record.device;
  profile.environment = record.environment;
  store(record, profile, before);
  return profile;
}

ProfilerOptions ProfileRun::profiler_options() const {
  ProfilerOptions options;
  options.timers = task_.timers;
  options.note = say;
  options.rule.warmup = task_.warmup;
  options.rule.max_seconds = task_.max_seconds;
  options.rule.samples_at_limit = 1;
  if (task_.samples == 0) options.power = energy_poll(task_.device);
  if (task_.samples > 0) {
    options.rule.min_samples = options.rule.max_samples = task_.samples;
    options.rule.target_relative_ci = 0, options.rule.max_seconds = 1e9, options.rule.samples_at_limit = 0;
  }
  Profile rows;
  describe_session(rows, session_, phase_calls(session_, task_.phase));
  std::set<std::string> names = rates_needed(rows);
  auto given = [&](const std::string& name) {
    return std::any_of(task_.rates.begin(), task_.rates.end(), [&](auto& r) { return r.name == name; });
  };
  if (!std::all_of(names.begin(), names.end(), given)) say("measuring the limits of the device ...");
  options.rates = device_rates(task_.device, names, task_.rates);
  return options;
}

Profile ProfileRun::profiled() {
  parts_.begin("limits");
  ProfilerOptions options = profiler_options();
  const Recipe& r = task_.recipe;
  say(fmt::format("profiling {} {}, {}, batch {}, seq {} ...", r.model.name, name(task_.phase), r.precision, r.batch,
                  r.seq_length()));
  try {
    parts_.begin("weights");
    PhaseRunner runner = make_runner();
    int runs = 0;
    options.before_run = [&] {
      check_interrupt();
      if (runs < 2) parts_.begin(runs++ == 0 ? "first step" : "steps");
    };
    Profile profile = run_profiler(runner, options);
    record_memory(profile.memory);
    if (task_.samples == 0)
      if (std::string note = few_samples_note(profile.step_ms.size(), task_.max_seconds); !note.empty()) say(note);
    return profile;
  } catch (const std::bad_alloc&) {
    throw Error(Exit::does_not_fit, "the system refused the allocation", "out of memory", "Use a smaller --batch.");
  }
}

// The profiler's own peak of a CPU is of the last part alone.
void ProfileRun::record_memory(ProfileMemory& memory) {
  int64_t peak = 0;
  for (const MemoryPart& p : parts_.end()) {
    memory.process.push_back({p.part, p.start, p.peak.value_or(-1), p.end});
    if (p.part == "weights") peak = 0;
    peak = std::max(peak, p.peak.value_or(peak_resident_bytes()));
  }
  if (task_.device.kind == "cpu") memory.device_peak_bytes = peak;
}

PhaseRunner ProfileRun::make_runner() {
  if (task_.group) {
    task_.group->start_after_first();
    check_ranks(*task_.group, session_, task_.phase, task_.seed, false);
  }
  return PhaseRunner(std::move(session_), task_.phase, task_.seed, false, task_.group);
}

void ProfileRun::follow() { make_runner().follow(); }

void ProfileRun::store(RunRecord& record, const Profile& p, const Conditions& before) {
  std::vector<SampleRow> samples;
  for (size_t i = 0; i < p.step_ms.size(); ++i) samples.push_back({p.step_ms[i], int(i), "", p.throttled[i] != 0});
  recorder_.add_samples(record, samples);
  recorder_.set_document(record, "profile", to_json(p));
  record.environment_after = environment_after_json(task_.device, before);
  record.status = "done";
  record.result = profile_result(p, task_.device.name);
  recorder_.finish(record);
}

}  // namespace crest
