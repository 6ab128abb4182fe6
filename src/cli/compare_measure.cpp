#include "cli/compare_measure.h"

#include <fmt/format.h>

#include <optional>

#include "cli/session_json.h"
#include "core/error.h"
#include "core/text.h"
#include "measure/ab.h"
#include "measure/memory.h"
#include "measure/profile_rates.h"
#include "measure/profile_rows.h"
#include "measure/profiler.h"
#include "train/stop_signal.h"

namespace crest {

namespace {

void check_interrupt() {
  if (StopSignal::requested()) throw Error(Exit::interrupted, "interrupted", "crest compare");
}

void say(const std::string& line) { fmt::print(stderr, "{}\n", printable(line, 400)); }

class Pair {
 public:
  explicit Pair(const CompareMeasureOptions& o) : o_(o), phase_(phases_of(o.phase).at(0)) {
    given_rates_ = parse_rates(o.rates, "--rates");
    prepare(a_, o.a, "--a");
    prepare(b_, o.b, "--b");
  }

  MeasuredPair run() {
    recorder_ = o_.store.open();
    reset_peak_resident();
    try {
      begin(a_, 0);
      begin(b_, held(a_));
      AbResult rounds = interleave();
      for (Side* s : {&a_, &b_})
        if (s->cell) profile(*s);
      take_samples(rounds);
    } catch (const Error& e) {
      for (Side* s : {&a_, &b_})
        if (s->record.status == "running")
          finish(*s, e.code() == Exit::interrupted ? "interrupted" : "failed", e.what());
      throw;
    }
    for (Side* s : {&a_, &b_})
      if (s->cell) finish(*s, "done", "");
    return {std::move(a_.record), std::move(b_.record), floor_};
  }

 private:
  struct Side {
    Device device;
    Recipe recipe;
    int64_t limit = 0;
    Conditions before;
    RunRecord record;
    std::unique_ptr<BenchCell> cell;
    Profile profile;
  };

  void prepare(Side& s, const std::string& flags, const char* which) {
    CellOptions cell = o_.base;
    try {
      if (flags.find_first_not_of(' ') != std::string::npos) overlay_flags(flags, cell);
    } catch (const Error& e) {
      fail_usage(e.problem(), which, fmt::format("It holds recipe flags, for example {} '--fusion off'.", which));
    }
    s.device = cell.device.find();
    s.recipe = resolve(cell.recipe.finish(default_model(s.device)), s.device);
    s.limit = cell.device.limit(s.device) / s.recipe.data_parallel;
  }

  int64_t held(const Side& s) const { return s.cell ? s.cell->session().planned_bytes() : 0; }

  // Opens the record and takes the memory; what does not fit has no cell.
  void begin(Side& s, int64_t taken) {
    CompiledSession session = compile_phase(s.recipe, s.device, phase_);
    s.before = read_conditions(s.device);
    s.record = new_record("profile", o_.store.name, s.recipe, s.device, name(phase_), s.before);
    s.record.status = "running";
    recorder_.begin(s.record);
    set_document(s, "plan", plan_document(session));
    set_document(s, "program", program_document(session, phase_calls(session, phase_)));
    int64_t planned = session.planned_bytes() * s.recipe.data_parallel;
    s.record.result = {{"memory", {{"planned_bytes", planned}}}};
    try {
      check_fits(session, s.limit);
      if (planned + taken > s.limit * s.recipe.data_parallel)
        fail("both sides together do not fit in memory", "crest compare",
             "Measure them one after the other: crest profile, twice, then crest compare A B.");
      s.cell = std::make_unique<BenchCell>(std::move(session), phase_, o_.seed);
    } catch (const std::bad_alloc&) {
      finish(s, "out_of_memory", "the system refused the memory");
    } catch (const Error& e) {
      if (e.code() != Exit::does_not_fit) throw;
      finish(s, "out_of_memory", e.what());
    }
  }

  double run_once(Side& s) {
    check_interrupt();
    return s.cell->run();
  }

  AbResult interleave() {
    AbResult result;
    if (!a_.cell || !b_.cell) return result;
    AbRule rule;
    rule.warmup_rounds = o_.warmup;
    rule.max_seconds = o_.max_seconds;
    if (o_.samples > 0)
      rule.min_rounds = rule.max_rounds = o_.samples, rule.max_seconds = 1e9, rule.target_relative_ci = 0;
    say(fmt::format("interleaved rounds of {}: A, B and A again ...", name(phase_)));
    result = compare_interleaved({{"A", [&] { return run_once(a_); }}, {"B", [&] { return run_once(b_); }}}, rule);
    floor_ = result.noise_floor;
    return result;
  }

  void profile(Side& s) {
    ProfilerOptions options;
    options.before_run = check_interrupt;
    options.rule = {.warmup = 1,
                    .min_samples = 6,
                    .max_samples = 20,
                    .max_seconds = o_.max_seconds / 4,
                    .target_relative_ci = 0.01};
    Profile rows;
    describe_session(rows, s.cell->session(), phase_calls(s.cell->session(), phase_));
    std::set<std::string> names = rates_needed(rows);
    // The same device has the same limits: what A measured is given to B.
    if (rates_device_ != s.device.name) rates_ = given_rates_, rates_device_ = s.device.name;
    say("measuring the limits that are not given by --rates ...");
    options.rates = device_rates(s.device, names, rates_);
    for (auto& r : options.rates) remember(r);
    say(fmt::format("profiling {} {} {} ...", &s == &a_ ? "A:" : "B:", s.recipe.model.name, name(phase_)));
    s.profile = run_profiler(*s.cell, options);
    s.profile.recipe = s.record.recipe, s.profile.device = s.record.device;
    s.profile.environment = s.record.environment;
  }

  void remember(const ProfileRate& rate) {
    for (auto& r : rates_)
      if (r.name == rate.name) return;
    rates_.push_back(rate);
  }

  // The step's time is that of the interleaved rounds, which saw the same machine.
  void take_samples(const AbResult& rounds) {
    size_t which = 0;
    for (Side* s : {&a_, &b_}) {
      size_t contender = which++;
      if (!s->cell) continue;
      if (!rounds.samples.empty()) {
        s->profile.step_ms = rounds.samples[contender].scaled(1e3).values();
        s->profile.throttled.assign(s->profile.step_ms.size(), 0);
      }
      for (size_t i = 0; i < s->profile.step_ms.size(); ++i)
        s->record.samples.push_back({s->profile.step_ms[i], int(i), "", false});
      recorder_.add_samples(s->record, s->record.samples);
      set_document(*s, "profile", to_json(s->profile));
      s->record.result = {{"step_ms_median", s->profile.step_median_ms()},
                          {"samples", s->profile.step_ms.size()},
                          {"noise_floor", floor_},
                          {"memory",
                           {{"planned_bytes", s->profile.memory.planned_bytes},
                            {"measured_peak_bytes", s->profile.memory.measured_peak_bytes},
                            {"device_peak_bytes", s->profile.memory.device_peak_bytes}}}};
    }
  }

  void set_document(Side& s, const std::string& key, Json json) {
    recorder_.set_document(s.record, key, json);
    s.record.documents[key] = std::move(json);
  }

  void finish(Side& s, const std::string& status, const std::string& error) {
    s.record.status = status, s.record.error = error;
    s.record.environment_after = environment_after_json(s.device, s.before);
    recorder_.finish(s.record);
  }

  const CompareMeasureOptions& o_;
  BenchPhase phase_;
  std::vector<ProfileRate> given_rates_, rates_;
  std::string rates_device_;
  Recorder recorder_;
  Side a_, b_;
  double floor_ = -1;
};

}  // namespace

MeasuredPair measure_pair(const CompareMeasureOptions& options) { return Pair(options).run(); }

}  // namespace crest
