#include "compare/measure_pair.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "bench/profiler.h"
#include "compare/measure_changes.h"
#include "core/error.h"
#include "core/text.h"
#include "core/timer.h"
#include "core/to_stderr.h"
#include "device/throttle.h"
#include "host/memory.h"
#include "host/stop_signal.h"
#include "plan/plan_json.h"
#include "plan/what_fits.h"
#include "predict/defaults.h"
#include "profile/profile_rates.h"
#include "profile/profile_rows.h"
#include "profile/profile_summary.h"
#include "stats/ab.h"
#include "store/new_record.h"

namespace crest {

namespace {

void check_interrupt() {
  if (StopSignal::requested()) throw Error(Exit::interrupted, "interrupted", "crest compare");
}

void say(const std::string& line) { to_stderr("{}\n", printable(line, 400)); }

class Pair {
 public:
  explicit Pair(const CompareMeasureOptions& o) : o_(o), phase_(parse_phase(o.phase)) {
    given_rates_ = parse_rates(o.rates, "--rates");
    prepare(a_, o.a);
    prepare(b_, o.b);
    changes_ = changes_between(o.a.recipe, o.b.recipe);
    const Settings of_a = settings_of(std::as_const(a_.recipe)), of_b = settings_of(std::as_const(b_.recipe));
    // A setting given on one side may equal the other side's computed value.
    std::erase_if(changes_, [&](auto& c) { return of_a.at(c.key).text() == of_b.at(c.key).text(); });
  }

  MeasuredPair run() {
    recorder_ = o_.store.open();
    reset_peak_resident();
    try {
      begin(a_, 0);
      begin(b_, held(a_));
      started_.emplace();
      for (Side* s : {&a_, &b_})
        if (s->runner) ready(*s);
      measure();
      measure_changes();
    } catch (const Error& e) {
      std::string status = e.code() == Exit::interrupted ? "interrupted" : "failed";
      for (Side* s : {&a_, &b_})
        if (s->record.status == "running") finish(*s, status, e.what());
      throw;
    }
    for (Side* s : {&a_, &b_})
      if (s->record.status == "running") finish(*s, "done", "");
    return {std::move(a_.record), std::move(b_.record), floor_};
  }

 private:
  static constexpr size_t most_profiled = 30;  // runs per side: more add nothing

  struct Side {
    Device device;
    Recipe recipe;
    int64_t limit = 0;
    Conditions before;
    RunRecord record;
    ProfilerOptions options;
    std::unique_ptr<PhaseRunner> runner;
    std::unique_ptr<StepProfiler> profiler;
  };

  void prepare(Side& s, const MeasurementOptions& measurement) const {
    s.device = measurement.device.find();
    const Recipe given = measurement.recipe.finish(default_model(s.device));
    s.limit = measurement.device.limit(s.device) / given.data_parallel;
    s.recipe = resolve(with_defaults(given, s.device, s.limit), s.device);
    s.recipe = phase_recipe(std::move(s.recipe), phase_, measurement.recipe);
  }

  static int64_t held(const Side& s) {
    return s.runner ? s.runner->session().planned_bytes() * s.recipe.data_parallel : 0;
  }

  // Opens the record and allocates memory. A side too large for memory has no runner.
  void begin(Side& s, int64_t taken) {
    CompiledSession session = compile_phase(s.recipe, s.device, phase_);
    s.before = read_conditions(s.device);
    s.record = new_record("profile", o_.store.name, s.recipe, s.device, name(phase_), s.before);
    s.record.status = "running";
    recorder_.begin(s.record);
    set_document(s, "plan", plan_document(session));
    set_document(s, "program", program_document(session, phase_calls(session, phase_)));
    int64_t planned = session.planned_bytes();
    s.record.result = {{"memory", {{"planned_bytes", planned}}}};
    try {
      check_fits(session, s.limit);
      if (planned * s.recipe.data_parallel + taken > s.limit * s.recipe.data_parallel)
        fail("both sides together do not fit in memory", "crest compare",
             "Measure them one after the other: crest profile, twice, then crest compare A B.");
      s.runner = std::make_unique<PhaseRunner>(std::move(session), phase_, o_.seed);
    } catch (const std::bad_alloc&) {
      finish(s, "out_of_memory", "the system refused the allocation");
    } catch (const Error& e) {
      if (e.code() != Exit::does_not_fit) throw;
      finish(s, "out_of_memory", e.what());
    }
  }

  // Device limits and warm-up.
  void ready(Side& s) {
    Profile rows;
    describe_session(rows, s.runner->session(), phase_calls(s.runner->session(), phase_));
    // The same device has the same limits, so B reuses A's.
    if (rates_device_ != s.device.name) rates_ = given_rates_, rates_device_ = s.device.name;
    s.options.rates = device_rates(s.device, rates_needed(rows), rates_);
    for (auto& r : s.options.rates) remember(r);
    s.options.before_run = check_interrupt;
    s.options.note = say;
    s.options.rule.warmup = o_.warmup;
    s.options.rule.max_seconds = o_.max_seconds;
    s.profiler = std::make_unique<StepProfiler>(*s.runner, s.options);
    s.profiler->warm_up();
  }

  // The rest of the time limit. Rates and warm-up count, too.
  double left() const { return o_.samples > 0 ? 1e9 : std::max(0.0, o_.max_seconds - started_->seconds()); }

  // A profiled run follows each plain run, so both see the same machine.
  double take_turn(Side& s) {
    double seconds = s.profiler->plain();
    watch_->sampled();
    size_t runs = s.profiler->profiled_runs();
    if (runs == 0 || (runs < most_profiled && left() > 0)) s.profiler->profiled();
    return seconds;
  }

  void measure() {
    say(fmt::format("interleaved rounds of {}: A and B, profiled between them ...", name(phase_)));
    if (!a_.runner || !b_.runner) {
      for (Side* s : {&a_, &b_})
        if (s->runner) measure_alone(*s);
      return;
    }
    AbRule rule;
    rule.warmup_rounds = 0, rule.rounds_at_limit = 1;
    // The other half is for recipes with some of the changes.
    rule.max_seconds = changes_.size() < 2 ? left() : left() / 2;
    if (o_.samples > 0) rule.min_rounds = rule.max_rounds = o_.samples, rule.target_relative_ci = 0;
    watch_.emplace(throttle_poll(a_.device));
    AbResult rounds =
        compare_interleaved({{"A", [&] { return take_turn(a_); }}, {"B", [&] { return take_turn(b_); }}}, rule);
    floor_ = rounds.noise_floor;
    std::vector<bool> marks = watch_->last(rounds.order.size());
    for (Side* s : {&a_, &b_}) {
      std::vector<SampleRow> samples;
      for (size_t i = 0; i < rounds.order.size(); ++i) {
        const AbRun& taken = rounds.order[i];
        if (taken.discarded || int(taken.contender) != (s == &b_)) continue;
        samples.push_back({taken.seconds * 1e3, taken.round, s == &a_ ? "a" : "b", marks[i]});
      }
      keep(*s, samples);
    }
  }

  // The contribution of each change, interleaved with A. Everything else is on record by now.
  void measure_changes() {
    if (changes_.size() < 2 || !a_.runner || !b_.runner) return;
    MeasuredChanges measured;
    measured.other = a_.record.uid, measured.changes = changes_;
    b_.profiler.reset(), b_.runner.reset();  // frees its memory
    const std::vector<ChangeSet> sets = sets_to_measure(changes_.size());
    if (sets.empty()) measured.missing = fmt::format("more than {} settings differ", most_changes);
    if (o_.a.device.flags() != o_.b.device.flags()) measured.missing = "the devices differ";
    for (size_t i = 0; i < sets.size() && measured.missing.empty(); ++i) {
      check_interrupt();
      say(fmt::format("A with some of the changes, {} of {} ...", i + 1, sets.size()));
      try {
        measured.sets.push_back(measure_set(sets[i], sets.size() - i));
      } catch (const Error& e) {
        if (e.code() == Exit::interrupted) throw;
        measured.missing = e.problem();
      } catch (const std::bad_alloc&) {
        measured.missing = "the system refused memory";
      }
    }
    set_document(b_, "changes", to_json(measured));
  }

  // `sets` are still to be measured.
  SetRatio measure_set(ChangeSet set, size_t sets) {
    const RecipeOptions options = with_changes(o_.a.recipe, o_.b.recipe, changes_, set);
    const double share = left() / double(sets);
    auto no_time = [&](double more) {
      fail(fmt::format("{:g} seconds are not enough, --max-seconds {:.0f} may be", o_.max_seconds,
                       std::ceil(2 * (o_.max_seconds / 2 + double(sets) * more))),
           "--max-seconds");
    };
    if (share <= 0) no_time(o_.max_seconds / 4);
    const Timer timer;
    const Recipe given = options.finish(default_model(a_.device));
    Recipe recipe = resolve(with_defaults(given, a_.device, a_.limit), a_.device);
    CompiledSession session = compile_phase(phase_recipe(std::move(recipe), phase_, options), a_.device, phase_);
    const int64_t ranks = a_.recipe.data_parallel, planned = session.planned_bytes() * session.recipe.data_parallel;
    if (planned + held(a_) > a_.limit * ranks)
      fail("A and some of the changes do not fit in memory together", "memory");
    const SetRatio none = {set, 1, 0, phase_tokens(session.recipe, phase_)};
    PhaseRunner runner(std::move(session), phase_, o_.seed);
    double once = 0;
    for (int i = 0; i < 2; ++i) {  // the first runs load kernels
      check_interrupt();
      once = runner.run();
    }
    const double rounds_take = 2 * once * (fewest_rounds + 1);
    const double spent = timer.seconds();
    AbRule rule;
    rule.warmup_rounds = 0;
    rule.max_seconds = share - spent;
    if (o_.samples > 0) rule.min_rounds = rule.max_rounds = o_.samples, rule.target_relative_ci = 0;
    if (left() < rounds_take) no_time(spent + rounds_take);
    rule.max_seconds = std::max(rule.max_seconds, 0.0);
    auto turn = [](PhaseRunner& r) {
      check_interrupt();
      return r.run();
    };
    AbResult rounds =
        compare_interleaved({{"A", [&] { return turn(*a_.runner); }}, {"set", [&] { return turn(runner); }}}, rule);
    const Comparison& c = rounds.comparisons[0];
    SetRatio measured = none;
    measured.ratio = c.ratio;
    measured.error = std::max((c.ratio_interval.high - c.ratio_interval.low) / 2, c.noise_floor * c.ratio);
    return measured;
  }

  void measure_alone(Side& s) {
    std::vector<SampleRow> samples;
    while (!s.options.rule.done(s.profiler->samples(), s.profiler->seconds())) {
      samples.push_back({s.profiler->plain() * 1e3, int(samples.size()), "", false});
      s.profiler->profiled();
    }
    keep(s, samples);
  }

  // The profile keeps the steps of the rounds, without discarded ones.
  void keep(Side& s, const std::vector<SampleRow>& samples) {
    Profile p = s.profiler->finish();
    p.recipe = s.record.recipe, p.device = s.record.device, p.environment = s.record.environment;
    p.step_ms.clear(), p.throttled.clear();
    for (auto& row : samples) p.step_ms.push_back(row.ms), p.throttled.push_back(row.throttled);
    s.record.samples = samples;
    recorder_.add_samples(s.record, samples);
    set_document(s, "profile", to_json(p));
    s.record.result = profile_result(p, s.device.name);
    if (floor_ >= 0) s.record.result["noise_floor"] = floor_;
  }

  void remember(const ProfileRate& rate) {
    for (auto& r : rates_)
      if (r.name == rate.name) return;
    rates_.push_back(rate);
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
  std::vector<GivenChange> changes_;
  std::vector<ProfileRate> given_rates_, rates_;
  std::string rates_device_;
  Recorder recorder_;
  std::optional<Timer> started_;
  std::optional<ThrottleWatch> watch_;
  Side a_, b_;
  double floor_ = -1;
};

}  // namespace

MeasuredPair measure_pair(const CompareMeasureOptions& options) {
  if (need_processes(options.a, options.b)) return measure_in_processes(options);
  return Pair(options).run();
}

}  // namespace crest
