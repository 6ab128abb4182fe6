// crest bench --ab, --peer, --noise: interleaved rounds of two contenders.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <optional>

#include "bench/bench_measure.h"
#include "core/error.h"
#include "core/text.h"
#include "host/external.h"
#include "host/memory.h"
#include "host/stop_signal.h"
#include "terminal/fit_table.h"
#include "terminal/print_json.h"
#include "terminal/table.h"

namespace crest {

namespace {

class ComparisonRun {
 public:
  ComparisonRun(BenchMeasure& bench, const AbRule& rule, const BenchTask& task, const MeasurementOptions* second)
      : bench_(bench), o_(bench.options()), rule_(rule), a_{task}, watch_(throttle_poll(task.device)) {
    if (second) b_ = Side{bench.task(*second, task.phase)};
  }

  int run() {
    grid_ = o_.noise ? "" : new_uid();
    try {
      begin();
      AbResult result = o_.peer.empty() ? compare_recipes() : compare_with_peer();
      record(result);
      print(result);
    } catch (const Error& e) {
      std::string status = e.code() == Exit::interrupted    ? "interrupted"
                           : e.code() == Exit::does_not_fit ? "out_of_memory"
                                                            : "failed";
      for (RunRecord* r : records()) bench_.finish(*r, status, nullptr, e.what());
      throw;
    }
    return 0;
  }

 private:
  struct Side {
    BenchTask task;
    std::unique_ptr<PhaseRunner> runner = nullptr;
    RunRecord record = {};
    BenchRow row = {};
  };

  std::vector<RunRecord*> records() {
    std::vector<RunRecord*> all = {&a_.record};
    if (b_) all.push_back(&b_->record);
    if (!o_.peer.empty()) all.push_back(&peer_);
    return all;
  }

  void begin() {
    a_.record = bench_.begin(o_.noise ? "noise" : "bench", a_.task, grid_);
    if (b_) b_->record = bench_.begin("bench", b_->task, grid_);
    if (!o_.peer.empty()) peer_ = bench_.begin_peer(o_.peer, a_.record);
    reset_peak_resident();
    take_memory(a_, a_.task.limit);
    if (b_)
      take_memory(*b_,
                  b_->task.limit - a_.runner->session().planned_bytes() * a_.runner->session().recipe.data_parallel);
  }

  void take_memory(Side& side, int64_t limit) {
    CompiledSession session = compile_phase(side.task.recipe, side.task.device, side.task.phase);
    bench_.add_documents(side.record, session, side.task.phase);
    side.runner = bench_.make_runner(std::move(session), side.task, limit);
  }

  double run_once(Side& side) {
    BenchMeasure::check_interrupt();
    return side.runner->run();
  }
  // Wraps a contender to record whether the device throttled during a sample.
  std::function<double()> watched(std::function<double()> run) {
    return [this, run] {
      double seconds = run();
      watch_.sampled();
      return seconds;
    };
  }

  AbResult compare_recipes() {
    BenchMeasure::say(fmt::format("interleaved rounds of {}: A and B ...", name(a_.task.phase)));
    Side& second = b_ ? *b_ : a_;
    AbResult result = compare_interleaved(
        {{"A", watched([&] { return run_once(a_); })},
         {b_ ? "B (" + o_.ab + ")" : std::string("A again"), watched([&] { return run_once(second); })}},
        rule_);
    a_.row = bench_.finished_row(*a_.runner, a_.task, result.samples[0]);
    if (b_) b_->row = bench_.finished_row(*b_->runner, b_->task, result.samples[1]);
    return result;
  }

  // The peer times itself, without its warm-up and compilation. One run of it is compared with the
  // median of several of Crest's runs.
  AbResult compare_with_peer() {
    for (int i = 0; i < o_.warmup; ++i) run_once(a_);
    rule_.warmup_rounds = 0;
    if (o_.samples == 0) rule_.min_rounds = rule_.max_rounds = 6;
    rule_.max_seconds = 1e9, rule_.apart = true;
    auto run_crest = [&] {
      Samples inner;
      for (int i = 0; i < 5; ++i) inner.add(run_once(a_));
      return inner.median();
    };
    ExternalOptions external{.timeout_seconds = o_.timeout, .canceled = [] { return StopSignal::requested(); }};
    auto run_peer = [&] { return run_external(o_.peer, external).step_ms / 1e3; };
    BenchMeasure::say(fmt::format("interleaved rounds with the peer: {} ...", o_.peer));
    AbResult result = compare_interleaved({{"crest", watched(run_crest)}, {"peer", watched(run_peer)}}, rule_);
    a_.row = bench_.finished_row(*a_.runner, a_.task, result.samples[0]);
    return result;
  }

  // Samples in the order measured, by contender: "a", "b" (for --noise: A again), "peer".
  void record(const AbResult& result) {
    std::vector<bool> marks = watch_.last(result.order.size());
    std::vector<SampleRow> ours, theirs;
    size_t throttled_a = 0, throttled_b = 0;
    for (size_t i = 0; i < result.order.size(); ++i) {
      const AbRun& s = result.order[i];
      if (s.discarded) continue;
      bool second = s.contender == 1;
      std::string who = !second ? "a" : o_.peer.empty() ? "b" : "peer";
      (second && !o_.noise ? theirs : ours).push_back({s.seconds * 1e3, s.round, who, marks[i]});
      if (marks[i]) ++(second ? throttled_b : throttled_a);
    }
    Json comparison = to_json(result);
    comparison["runs"] = Json::object();
    comparison["runs"]["a"] = a_.record.uid;
    a_.row.throttled = throttled_a, a_.row.throttle_reasons = watch_.reasons();
    if (result.noise_floor >= 0) a_.row.noise_floor = result.noise_floor;
    rows_.push_back(to_json(a_.row));
    if (b_) {
      b_->row.throttled = throttled_b, b_->row.throttle_reasons = watch_.reasons();
      rows_.push_back(to_json(b_->row));
    }
    if (!o_.peer.empty()) rows_.push_back(peer_to_json(o_.peer, result.samples[1]));
    auto all = records();
    if (all.size() > 1) comparison["runs"]["b"] = all[1]->uid;
    for (size_t i = 0; i < all.size(); ++i) {
      bench_.recorder().add_samples(*all[i], i ? theirs : ours);
      bench_.recorder().set_document(*all[i], "comparison", comparison);
      bench_.finish(*all[i], "done", rows_[i]);
    }
  }

  void print(const AbResult& result) const {
    if (o_.json) return print_json({{"rows", rows_}, {"comparison", to_json(result)}});
    bench_.print_head(a_.task.recipe, a_.task.device);
    fmt::print("{}\n", text_of(rows_, use_color(STDOUT_FILENO), output_width()));
    if (!o_.noise) fmt::print("{}\n", printable(describe(result.comparisons[0]), 1000));
    if (result.noise_floor < 0) {
      fmt::print("{} within --max-seconds: a verdict needs {}\n", format_number_of(result.rounds, "round"),
                 fewest_rounds);
      return;
    }
    fmt::print("{} rounds; noise floor {:.1f}%: the larger noise of {} against itself in neighboring rounds\n",
               result.rounds, 100 * result.noise_floor, o_.peer.empty() ? "A or B" : "crest or the peer");
  }

  BenchMeasure& bench_;
  const BenchOptions& o_;
  AbRule rule_;
  Side a_;
  std::optional<Side> b_;
  RunRecord peer_;
  ThrottleWatch watch_;
  std::string grid_;
  std::vector<Json> rows_;
};

}  // namespace

AbRule comparison_rule(const BenchOptions& o) {
  if (int(o.noise) + int(!o.ab.empty()) + int(!o.peer.empty()) > 1)
    fail_usage("--ab, --peer and --noise exclude each other", "crest bench",
               "--ab and --peer measure the noise floor too.");
  AbRule r;
  r.warmup_rounds = o.warmup;
  r.max_seconds = o.max_seconds * 3;  // per measurement; three, because of the noise floor
  r.rounds_at_limit = 1;
  check_rounds(o.samples);
  if (o.samples > 0) {
    r.min_rounds = r.max_rounds = o.samples;
    r.max_seconds = 1e9;
    r.target_relative_ci = 0;
  }
  return r;
}

int run_comparison(BenchMeasure& bench, const AbRule& rule, const BenchTask& task, const MeasurementOptions* second) {
  return ComparisonRun(bench, rule, task, second).run();
}

}  // namespace crest
