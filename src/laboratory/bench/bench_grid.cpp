#include "bench/bench_grid.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <set>

#include "core/error.h"
#include "core/sha256.h"
#include "core/text.h"
#include "core/timer.h"
#include "device/conditions.h"
#include "device/energy.h"
#include "host/memory.h"
#include "profile/pipeline_text.h"
#include "store/store.h"
#include "terminal/fit_table.h"
#include "terminal/print_json.h"
#include "terminal/table.h"

namespace crest {

namespace {

constexpr size_t measurements_without_asking = 100;
constexpr double seconds_without_asking = 30 * 60;
constexpr double usual_share_of_peak = 0.3;  // of the matmul rate, until something is measured
constexpr double setup_seconds = 0.3;        // per measurement: compiling, filling weights

StoppingRule rule_of(const BenchOptions& o) { return stopping_rule(o.warmup, o.samples, 200, o.max_seconds); }

// The stopping rule of one round, counted from 0.
StoppingRule rule_of(const BenchOptions& o, int round, int rounds) {
  StoppingRule rule = stopping_rule(o.warmup, (o.samples + rounds - 1 - round) / rounds, 200, o.max_seconds / rounds);
  if (o.samples == 0) rule.min_samples = (rule.min_samples + rounds - 1) / rounds, rule.samples_at_limit = 1;
  return rule;
}

}  // namespace

double GridClock::task_seconds(const BenchTask& task, double rate) const {
  StoppingRule rule = rule_of(o_);
  double step = palm_flops(task.recipe, task.phase) / rate;
  double runs = std::clamp(rule.max_seconds / step, double(rule.min_samples), double(rule.max_samples));
  return setup_seconds + step * (rule.warmup + runs);
}

double GridClock::estimate(const std::vector<BenchTask>& tasks, double rate) const {
  double sum = 0;
  for (auto& t : tasks) sum += task_seconds(t, rate);
  return sum;
}

void GridClock::measured(const BenchTask& task, double run_seconds, double wall_seconds) {
  if (run_seconds <= 0) return;
  flops_ += palm_flops(task.recipe, task.phase);
  run_seconds_ += run_seconds;
  wall_seconds_ += wall_seconds;
  done_.push_back(task);
}

double GridClock::left(const std::vector<BenchTask>& tasks, size_t from) const {
  if (rate() <= 0) return -1;
  std::vector<BenchTask> rest(tasks.begin() + std::ptrdiff_t(from), tasks.end());
  return estimate(rest, rate()) * wall_seconds_ / estimate(done_, rate());
}

void confirm(BenchMeasure& bench, const std::vector<BenchTask>& tasks) {
  if (bench.options().yes || tasks.size() == 1) return;
  GridClock clock(bench.options());
  const Device& device = tasks[0].device;
  // Every device reaches this rate, so a short grid needs no rate measurement.
  double seconds = clock.estimate(tasks, device.kind == "cuda" ? 5e12 : 2e9 * device.threads);
  if (tasks.size() <= measurements_without_asking && seconds <= seconds_without_asking) return;
  double peak = bench.options().peak;
  if (peak <= 0) peak = bench.peak(tasks[0].recipe.precision, device).flops_per_second;
  if (peak > 0) seconds = clock.estimate(tasks, usual_share_of_peak * peak);
  if (tasks.size() <= measurements_without_asking && seconds <= seconds_without_asking) return;
  fail_usage(fmt::format("{} recipes take up to about {}", tasks.size(), format_duration(seconds)), "crest bench",
             fmt::format("Add --yes to measure them all, or use fewer values, --samples N or a smaller --max-seconds. "
                         "(Estimated at {:.0f}% of the peak rate.)",
                         100 * usual_share_of_peak));
}

namespace {

// The identity of a grid: its measurements and measurement settings.
std::string identity(const BenchOptions& o, const std::vector<BenchTask>& tasks) {
  std::string text = fmt::format("{} {} {} {}", o.samples, o.warmup, o.max_seconds, o.seed);
  for (auto& t : tasks) text += " " + t.key;
  return sha256_hex(text.data(), text.size()).substr(0, 8);
}

// Takes every measurement once, then again in reverse order. Machine drift then affects all alike,
// and a measurement's rounds show its size (stats/ratio.h). A record has both rounds.
class Grid {
 public:
  Grid(BenchMeasure& bench, const std::vector<BenchTask>& tasks)
      : bench_(bench),
        o_(bench.options()),
        tasks_(tasks),
        rounds_(tasks.size() > 1 && bench.options().samples != 1 ? 2 : 1),
        visits_(tasks),
        measurements_(tasks.size()),
        clock_(o_),
        identity_(identity(o_, tasks)) {
    if (rounds_ == 2) visits_.insert(visits_.end(), tasks.rbegin(), tasks.rend());
    if (tasks.size() > 1) id_ = identity_ + new_uid().substr(0, 8);
  }

  int run() {
    if (o_.resume) find_earlier();
    try {
      for (size_t v = 0; v < visits_.size(); ++v) visit(v);
    } catch (const Error& e) {
      if (e.code() != Exit::interrupted || tasks_.size() == 1) throw;
      tell_interrupted();
    }
    print();
    return 0;
  }

 private:
  struct Measurement {
    std::vector<Samples> rounds;  // seconds
    std::vector<bool> throttled;
    std::set<std::string> reasons;
    Energy energy;   // of the rounds
    Json row;        // null: not measured
    int64_t id = 0;  // id of its record
    bool complete = false;
  };

  // Loads the newest grid of the same measurements, to continue it.
  void find_earlier() {
    if (tasks_.size() == 1)
      fail_usage("only a grid can be resumed, and this is one recipe", "--resume",
                 "Give a list, for example --batch 4,8.");
    RunFilter filter;
    filter.kind = "bench";
    std::map<std::string, std::vector<RunRecord>> earlier;  // by key
    std::string grid;
    Store& store = *bench_.recorder().store();
    for (auto& run : store.list(filter)) {
      if (!run.grid.starts_with(identity_) || (!grid.empty() && run.grid != grid)) continue;
      grid = run.grid;
      bool whole = run.result.is_object() && run.result.contains("recipe") && run.result.contains("memory");
      if (whole && (run.status == "done" || run.status == "out_of_memory")) earlier[run.key].push_back(run);
    }
    if (grid.empty())
      fail("no grid of these recipes is recorded", printable(bench_.recorder().file()),
           "Use the same flags and --store as before, or omit --resume.");
    id_ = grid;
    for (size_t i = 0; i < tasks_.size(); ++i) {
      auto& list = earlier[tasks_[i].key];
      if (list.empty()) continue;
      take(measurements_[i], store.load(list.back().id));
      list.pop_back();
    }
  }

  void take(Measurement& measurement, const RunRecord& run) {
    measurement.row = run.result, measurement.id = run.id;
    measurement.complete = run.status == "out_of_memory" || run.result.value("rounds", 2) >= rounds_;
    if (measurement.complete) return;
    measurement.rounds.emplace_back();
    for (auto& s : run.samples) measurement.rounds[0].add(s.ms / 1e3), measurement.throttled.push_back(s.throttled);
    for (auto& reason : run.result.value("throttle_reasons", std::vector<std::string>()))
      measurement.reasons.insert(reason);
  }

  void visit(size_t v) {
    bool again = v >= tasks_.size();
    size_t i = again ? visits_.size() - 1 - v : v;
    const BenchTask& task = tasks_[i];
    Measurement& measurement = measurements_[i];
    if (measurement.complete || (!again && !measurement.rounds.empty())) return;
    BenchMeasure::check_interrupt();
    double left = clock_.left(visits_, v);
    std::string label = task.label.empty() ? "" : ": " + task.label;
    std::string eta = left >= 1 ? fmt::format(" (about {} left)", format_duration(left)) : "";
    std::string place =
        again ? fmt::format("[{}/{}, round 2]", i + 1, tasks_.size()) : fmt::format("[{}/{}]", i + 1, tasks_.size());
    BenchMeasure::say(fmt::format("{} {} {}{} ...{}", place, task.recipe.model.name, name(task.phase), label, eta));
    Timer timer;
    RunRecord record = again ? bench_.continue_record(measurement.id, task) : bench_.begin("bench", task, id_);
    measurement.id = record.id;
    try {
      measure_task(task, measurement, record);
    } catch (const Error& e) {
      // Keep the result of the first round.
      if (again)
        bench_.finish(record, "done", measurement.row);
      else
        bench_.finish(record, e.code() == Exit::interrupted ? "interrupted" : "failed", nullptr, e.what());
      throw;
    }
    clock_.measured(task, measurement.row.value("step_ms_median", 0.0) / 1e3, timer.seconds());
  }

  void measure_task(const BenchTask& task, Measurement& result, RunRecord& record) {
    reset_peak_resident();
    CompiledSession session = compile_phase(task.recipe, task.device, task.phase);
    if (result.rounds.empty()) bench_.add_documents(record, session, task.phase);
    BenchRow planned = bench_.planned_row(session, task);
    // In a grid, a measurement that does not fit is a result. Alone, it is an error.
    if (tasks_.size() > 1 && planned.planned * task.recipe.data_parallel > task.limit)
      return does_not_fit(planned, result, record, "");
    try {
      auto runner = bench_.make_runner(std::move(session), task, task.limit);
      add_times(*runner, task, result, record);
    } catch (const Error& e) {
      // Other processes may already hold their memory and would wait for this one.
      bool alone = task.recipe.ranks == 1 || tasks_.size() == 1;
      if (e.code() != Exit::does_not_fit || !result.rounds.empty() || !alone) throw;
      does_not_fit(planned, result, record, e.what());
      if (tasks_.size() > 1) return;
      if (o_.json) print();
      throw;
    }
  }

  void does_not_fit(BenchRow row, Measurement& result, RunRecord& record, const std::string& why) {
    row.out_of_memory = true;
    result.row = to_json(row), result.complete = true;
    bench_.finish(record, "out_of_memory", result.row, why);
  }

  void add_times(PhaseRunner& runner, const BenchTask& task, Measurement& result, RunRecord& record) {
    ThrottleWatch watch(throttle_poll(task.device));
    EnergyWatch energy(energy_poll(task.device));
    StoppingRule rule = rule_of(o_, int(result.rounds.size()), rounds_);
    auto run = [&] {
      BenchMeasure::check_interrupt();
      return runner.run_in_sequence();
    };
    int runs = 0;
    const Timer timer;
    const Conditions before = read_conditions(task.device);
    Samples seconds = measure(
        [&] {
          if (runs++ == rule.warmup) energy.begin();
          double s = run();
          watch.sampled(), energy.sampled();
          return s;
        },
        rule);
    std::optional<double> busy;  // the most of the rounds
    if (task.device.kind == "cpu") {
      busy = read_conditions(task.device, &before).other_load;
      if (result.row.is_object() && result.row.contains("other_load"))
        busy = std::max(*busy, double(result.row["other_load"]));
    }
    std::vector<bool> marks = watch.last(seconds.count());
    if (o_.samples == 0 && timer.seconds() < rule.max_seconds) energy.complete(run);
    runner.settle();
    const std::optional<PipelineTimes> stages = runner.stage_times(int(seconds.count()));
    result.energy.joules += energy.energy().joules, result.energy.seconds += energy.energy().seconds;
    std::vector<SampleRow> samples;
    for (size_t i = 0; i < seconds.count(); ++i)
      samples.push_back({seconds.values()[i] * 1e3, int(result.throttled.size() + i), "", marks[i]});
    result.rounds.push_back(seconds);
    result.throttled.insert(result.throttled.end(), marks.begin(), marks.end());
    for (auto& reason : watch.reasons()) result.reasons.insert(reason);
    Samples all;
    for (auto& round : result.rounds)
      for (double s : round.values()) all.add(s);
    BenchRow row = bench_.finished_row(runner, task, all);
    row.throttled = size_t(std::count(result.throttled.begin(), result.throttled.end(), true));
    row.throttle_reasons = result.reasons;
    row.other_load = busy;
    row.pipeline = stages;
    if (!o_.flush_cache) row.watts = result.energy.watts();  // else the power includes the flushes
    if (Store* store = bench_.recorder().store()) row.known_floor = noise_floor_of(*store, task.key, task.device.name);
    result.row = to_json(row);
    if (tasks_.size() > 1) result.row["rounds"] = result.rounds.size();
    if (result.rounds.size() > 1)
      result.row["round_ms"] = {result.rounds[0].median() * 1e3, result.rounds[1].median() * 1e3};
    result.complete = int(result.rounds.size()) == rounds_;
    if (std::string note = few_samples_note(all.count(), o_.max_seconds); !note.empty() && o_.samples == 0)
      if (result.complete) BenchMeasure::say(note);
    bench_.recorder().add_samples(record, samples);
    bench_.finish(record, "done", result.row);
  }

  std::vector<Json> rows() const {
    std::vector<Json> list;
    for (auto& measurement : measurements_)
      if (!measurement.row.is_null()) list.push_back(measurement.row);
    return list;
  }

  void print() const {
    if (o_.json) return print_json(rows());
    bench_.print_head(tasks_[0].recipe, tasks_[0].device);
    fmt::print("{}", text_of(rows(), use_color(STDOUT_FILENO), output_width()));
    for (const Json& row : rows()) {
      if (!row.contains("pipeline")) continue;
      const Json& r = row["recipe"];
      if (tasks_.size() > 1)
        fmt::print("\nbatch {}, {}, {}, stages {}", r["batch"].dump(),
                   format_number_of(r["grad_accumulation"].get<int64_t>(), "micro step"),
                   printable(r["schedule_pipeline"].get<std::string>()), printable(r["stages"].get<std::string>()));
      fmt::print("\n{}",
                 pipeline_text(row["pipeline"], std::min<size_t>(output_width(), 100), use_color(STDOUT_FILENO)));
    }
    for (auto& sentence : conclusions(rows())) fmt::print("{}\n", printable(sentence, 1000));
  }

  [[noreturn]] void tell_interrupted() const {
    size_t measured = rows().size();
    if (measured && !o_.json) print();
    std::string how =
        bench_.recorder().on()
            ? fmt::format("The measured recipes are in {}. The same command with --resume measures the rest.",
                          printable(bench_.recorder().file()))
            : "Nothing was recorded (--no-store).";
    auto complete = std::count_if(measurements_.begin(), measurements_.end(), [](auto& c) { return c.complete; });
    std::string rounds = rounds_ == 2 ? fmt::format(", {} of them twice", complete) : "";
    throw Error(Exit::interrupted, fmt::format("interrupted after {} of {} recipes{}", measured, tasks_.size(), rounds),
                "crest bench", how);
  }

  BenchMeasure& bench_;
  const BenchOptions& o_;
  const std::vector<BenchTask>& tasks_;
  int rounds_;
  std::vector<BenchTask> visits_;          // the tasks, then the same in reverse order
  std::vector<Measurement> measurements_;  // one per task
  GridClock clock_;
  std::string identity_, id_;
};

}  // namespace

int run_grid(BenchMeasure& bench, const std::vector<BenchTask>& tasks) { return Grid(bench, tasks).run(); }

}  // namespace crest
