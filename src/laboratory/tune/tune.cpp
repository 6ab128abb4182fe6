#include "tune/tune.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <set>

#include "core/error.h"
#include "core/text.h"
#include "core/timer.h"
#include "plan/fp8_weights.h"
#include "plan/plan_report.h"
#include "plan/stage_plans.h"
#include "plan/training_use.h"
#include "predict/defaults.h"
#include "predict/predicted_step.h"
#include "profile/profile_rates.h"
#include "tune/calibrate.h"
#include "tune/combinations.h"
#include "tune/finalists.h"
#include "tune/known_times.h"
#include "tune/search_time.h"

namespace crest {

namespace {

constexpr size_t most_finalists = 4;

class Search {
 public:
  Search(const TuneOptions& o, const Device& device, int64_t limit, const Calibration* calibration,
         const std::function<void(const std::string&)>& say)
      : o_(o), device_(device), limit_(limit), say_(say), known_(o, device, calibration) {
    if (calibration) model_ = calibration->times;
    rates_ = model_.rates();
    given_start_ = o.recipe.finish(default_model(device));
    if (given_start_.data_parallel > 1)
      fail_usage("virtual ranks are not tuned", "--data-parallel", "Give --ranks: each rank is a process.");
    lists_ = tune_lists(o, given_start_, device);
    most_ranks_ = most_ranks(lists_, given_start_);
    if (o.global_batch > 0) {
      given_start_.grad_accumulation = 1, given_start_.batch = share_of_batch(given_start_);
      if (given_start_.batch == 0)
        fail_usage(fmt::format("{} ranks cannot share a global batch of {}", given_start_.data_ranks(), o.global_batch),
                   "--global-batch",
                   fmt::format("Make it a multiple of {}, or give other --ranks.", given_start_.data_ranks()));
    }
    given_start_ = with_defaults(given_start_, device, limit_of_rank(given_start_, device, limit));
    // Each schedule has its own cut, and each batch its 8-bit weights (planned).
    for (const char* name : {"stages", "fp8-weights"})
      if (!o.recipe.has(name)) given_start_.pass_settings.erase(name);
    start_ = resolve(given_start_, device);
  }

  TuneResult run() {
    size_t first = start();
    if (here_) seed(first);
    grow();
    if (here_) {
      measure_best();
      if (r_.measured() == 0) nothing_fits();
      finals();
    }
    choose();
    if (!here_) r_.not_here = device_.name, r_.prediction = known_.text(step_of(r_.candidates[r_.best].recipe));
    r_.seconds = time_.seconds();
    return std::move(r_);
  }

  LongestContext longest() {
    LongestContext result;
    combinations_ = combinations_of(lists_, given_start_, device_, r_.not_allowed);
    result.combinations = combinations_.size();
    say(fmt::format("planning {} ...", format_number_of(int64_t(combinations_.size()), "combination")));
    std::optional<TuneCandidate> best;
    for (auto& c : combinations_) {
      bool given = c.changes.empty();
      int64_t known = best ? best->recipe.seq_length() : 0;
      std::optional<TuneCandidate> t = longest_of(c, given ? 0 : known);
      if (given) result.start = t;
      if (t && (!best || t->recipe.seq_length() > known)) best = std::move(t);
    }
    if (!best) nothing_fits();
    result.best = std::move(*best);
    result.seconds = time_.seconds();
    return result;
  }

 private:
  using Combination = TuneCombination;

  bool batch_is_free() const { return !o_.recipe.has("batch"); }

  // Whether this share of the search's time is over. If so, the current part ends.
  bool over(double share) {
    bool is = time_.late(share);
    r_.out_of_time |= is;
    return is;
  }
  void say(const std::string& what) {
    said_ = time_.seconds();
    say_(fmt::format("{:>4.0f} s  {}", said_, what));
  }

  // Sequences of one rank in a step; 0: the ranks cannot share them.
  int64_t share_of_batch(const Recipe& r) const {
    return o_.global_batch % r.data_ranks() ? 0 : o_.global_batch / r.data_ranks();
  }

  // Measures the device limits for all varied precisions.
  void rates() {
    std::map<std::string, Recipe> by_precision;
    for (auto& c : combinations_) {
      Recipe r = resolve(c.given, device_);
      r.batch = r.grad_accumulation = 1;
      by_precision.emplace(r.precision, r);
    }
    std::vector<CalibrationStep> steps;
    for (auto& [precision, recipe] : by_precision) steps.push_back({precision, recipe});
    if (rates_.empty()) say("measuring the limits of the device ...");
    const std::function<bool()> no_time = [this] { return time_.late(time_.planning_ends() / 2); };
    rates_ = step_rates(steps, device_, rates_, o_.sheet && o_.search_seconds > 0 ? &*o_.sheet : nullptr, no_time);
  }

  // Plans and predicts; none if it does not fit or is not allowed.
  size_t candidate(const Combination& c, int64_t batch, int64_t accumulation) {
    TuneCandidate t;
    t.changes = c.changes;
    Recipe given = c.given;
    given.batch = batch, given.grad_accumulation = accumulation;
    for (auto [name, value, from] : {std::tuple{"batch", batch, start_.batch},
                                     std::tuple{"grad-accumulation", accumulation, start_.grad_accumulation}})
      if (value != from) t.changes.push_back({name, std::to_string(value)});
    o_.check_interrupt();
    if (time_.seconds() > said_ + 5) say(fmt::format("{} planned ...", r_.candidates.size()));
    for (size_t i = 0; i < r_.candidates.size(); ++i)
      if (r_.candidates[i].changes == t.changes) return i;
    std::optional<CompiledSession> session = planned(given, t);
    if (!session) return TuneResult::none;
    if (!predict(t, *session)) return TuneResult::none;
    if (t.changes.empty()) r_.start = r_.candidates.size();
    r_.candidates.push_back(std::move(t));
    return r_.candidates.size() - 1;
  }

  // Layers are cut into stages by predicted times, and 8-bit weights are kept if they fit.
  Recipe with_choices(const Recipe& given) const {
    if (given.layout().size(Axis::pipeline) == 1 && fp8_weights_choices(given).size() == 1) return given;
    return with_defaults(given, device_, limit_of_rank(given, device_, limit_), "", true);
  }

  // The step; none if the plan of crest train does not fit or is not allowed.
  std::optional<CompiledSession> planned(const Recipe& given, TuneCandidate& t) {
    try {
      t.recipe = resolve(with_choices(given), device_);
      CompiledSession step = step_of(t.recipe);
      t.planned_bytes = t.step_bytes = step.planned_bytes();
      // The step is a lower bound: if it is too large, no second plan is needed.
      int64_t limit = limit_of_rank(t.recipe, device_, limit_);
      if (step.limited_bytes() <= limit) {
        CompiledSession whole = step;
        extend(whole, session_programs(t.recipe, training_use), {.verify = false});
        whole = largest_stage(std::move(whole), {.verify = false});
        t.planned_bytes = whole.planned_bytes();
        if (whole.limited_bytes() <= limit) return step;
      }
      if (counted_.insert(change_text(t)).second) ++r_.too_large;
      if (!r_.smallest || t.step_bytes < r_.smallest->step_bytes) r_.smallest = t;
    } catch (const Error& e) {
      if (e.code() != Exit::usage) throw;
      if (counted_.insert(change_text(t)).second) ++r_.not_allowed;
    }
    return std::nullopt;
  }

  CompiledSession step_of(const Recipe& recipe) const {
    const CompileOptions quick = {.verify = false};
    return largest_stage(compile_phase(recipe, rank_device(recipe, device_), BenchPhase::step, quick), quick);
  }

  // Steps of one rank: predicted from all measurements so far. Steps of several ranks: predicted
  // from known times, scaled by their mean error so far. False on a described device in an unknown
  // precision, unless the user asked for it.
  bool predict(TuneCandidate& t, const CompiledSession& session) {
    if (learns()) {
      rows_.push_back(TimeModel::prepare(step_rows(session)));
      if (model_.steps()) t.predicted = model_.predict(rows_.back());
      return true;
    }
    std::optional<StepPrediction> plain = known_.predict(session);
    if (!plain && !here_) {
      if (t.recipe.precision != start_.precision && !asked_for("precision")) return false;
      fail_usage(known_.why_not(session), "--device", "Give --calibration FILE, or other --ranks.");
    }
    if (plain) scale(t, *plain);
    plain_.push_back(std::move(plain));
    return true;
  }

  bool asked_for(const std::string& setting) const {
    return o_.recipe.has(setting) || std::any_of(o_.vary.begin(), o_.vary.end(), [&](auto& text) {
             return text == setting || text.starts_with(setting + "=");
           });
  }

  void scale(TuneCandidate& t, StepPrediction p) const {
    p.ms *= scale_, p.low_ms *= scale_, p.high_ms *= scale_;
    t.predicted = std::move(p), t.scale = scale_;
  }

  bool learns() const { return here_ && most_ranks_ == 1; }

  // With a context and sequence of `length` tokens; none if it does not fit.
  std::optional<TuneCandidate> with_context(const Combination& c, int64_t length) {
    o_.check_interrupt();
    TuneCandidate t;
    t.changes = c.changes;
    Recipe given = c.given;
    given.batch = batch_is_free() ? 1 : start_.batch;
    given.model.context = given.seq = length;
    if (given.batch != start_.batch) t.changes.emplace_back("batch", std::to_string(given.batch));
    t.changes.emplace_back("context", std::to_string(length));
    t.changes.emplace_back("seq", std::to_string(length));
    std::optional<CompiledSession> session = planned(given, t);
    if (!session) return std::nullopt;
    if (!learns())
      t.predicted = known_.predict(*session);
    else if (model_.steps())
      t.predicted = model_.predict(step_rows(*session));
    return t;
  }

  // The longest context of a combination, if it is longer than `known`: doubled until it no longer
  // fits, then bisected.
  std::optional<TuneCandidate> longest_of(const Combination& c, int64_t known) {
    constexpr int64_t most = int64_t(16) << 20;
    int64_t fits = known, length = known + context_step;
    std::optional<TuneCandidate> best;
    for (;;) {
      std::optional<TuneCandidate> t = with_context(c, length);
      if (!t) break;
      best = std::move(t), fits = length;
      if (length == most) return best;
      length = std::min(most, 2 * length);
    }
    if (!best) return std::nullopt;
    for (int64_t too_long = length; too_long - fits > context_step;) {
      int64_t middle = fits + (too_long - fits) / 2 / context_step * context_step;
      if (auto t = with_context(c, middle))
        best = std::move(t), fits = middle;
      else
        too_long = middle;
    }
    return best;
  }

  void measure(size_t i) {
    TuneCandidate& c = r_.candidates[i];
    say(fmt::format("measuring {} ...", change_text(c)));
    const Timer timer;
    try {
      if (learns()) {
        Profile p = measure_step(c.recipe, device_, limit_,
                                 {.max_seconds = std::min(o_.max_seconds, time_.left(time_.measuring_ends()) / 2),
                                  .seed = o_.seed,
                                  .rates = rates_,
                                  .before_run = o_.check_interrupt});
        c.measured_ms = p.step_median_ms();
        model_.add(p);
      } else {
        c.measured_ms = runs_.step_ms(c.recipe, std::min(o_.max_seconds, time_.left(time_.measuring_ends()) / 2));
        Samples off;
        for (size_t k = 0; k < r_.candidates.size(); ++k)
          if (r_.candidates[k].measured_ms) off.add(*r_.candidates[k].measured_ms / plain_[k]->ms);
        scale_ = off.median();
      }
    } catch (const Error& e) {
      if (e.code() != Exit::does_not_fit) throw;
      c.failed = e.problem();
    }
    if (c.measured_ms) time_.measured(timer.seconds(), *c.measured_ms);
    for (size_t k = 0; k < r_.candidates.size(); ++k) {
      TuneCandidate& other = r_.candidates[k];
      if (other.measured_ms) continue;  // keeps the earlier prediction
      if (learns())
        other.predicted = model_.predict(rows_[k]);
      else
        scale(other, *plain_[k]);
    }
    if (c.measured_ms)
      say(fmt::format("{:.{}f} ms, {} tokens/s{}", *c.measured_ms, *c.measured_ms < 10 ? 2 : 1, format_count(c.rate()),
                      c.rate() >= fastest_measured() ? ": the fastest so far" : ""));
  }

  double fastest_measured() const {
    double fastest = 0;
    for (auto& c : r_.candidates)
      if (c.measured_ms) fastest = std::max(fastest, c.rate());
    return fastest;
  }

  // Makes the combinations and finds the first that fits: the settings as given, or another
  // combination with one sequence. If none fits, the optimizer's state moves to host memory.
  size_t start() {
    combinations_ = combinations_of(lists_, given_start_, device_, r_.not_allowed);
    if (o_.global_batch > 0)  // some numbers of ranks cannot share it
      r_.not_allowed += int64_t(std::erase_if(combinations_, [&](auto& c) { return share_of_batch(c.given) == 0; }));
    size_t first = first_that_fits();
    if (first == TuneResult::none && may_offload()) {
      say("nothing fits: with the optimizer's state in host memory ...");
      for (auto& c : combinations_) {
        settings_of(c.given).apply({{"offload", {"optimizer"}}});
        c.changes.emplace_back("offload", "optimizer");
      }
      first = first_that_fits();
    }
    if (first == TuneResult::none) nothing_fits();
    return first;
  }

  bool may_offload() const {  // a CPU's memory is host memory
    return device_.kind == "cuda" && !o_.recipe.has("offload") &&
           std::none_of(lists_.begin(), lists_.end(), [](auto& list) { return list.name == "offload"; });
  }

  size_t first_that_fits() {
    size_t first = TuneResult::none;
    if (const Combination* plain = as_given()) first = candidate(*plain, start_.batch, start_.grad_accumulation);
    for (auto& c : combinations_) {
      if (first != TuneResult::none) break;
      first = candidate(c, batch_is_free() ? 1 : start_.batch, least_accumulation(c));
    }
    return first;
  }

  const Combination* as_given() const {
    for (auto& c : combinations_)
      if (c.changes.empty()) return &c;
    return nullptr;
  }

  // The micro steps of a step with one sequence each.
  int64_t least_accumulation(const Combination& c) const {
    return o_.global_batch > 0 ? share_of_batch(c.given) : start_.grad_accumulation;
  }

  // Measures the first fitting candidate, to predict the others from it.
  void seed(size_t first) {
    if (learns())
      rates();
    else
      seed_ranks(first);
    measure(first);
    if (learns() && !model_.steps()) nothing_fits();
    // A single sequence shows the fixed cost of a step.
    const Combination* plain = as_given();
    if (!learns() || !plain || !batch_is_free() || o_.global_batch > 0 || start_.batch == 1) return;
    if (size_t one = candidate(*plain, 1, start_.grad_accumulation); one != TuneResult::none) measure(one);
  }

  void seed_ranks(size_t first) {
    const Recipe& recipe = r_.candidates[first].recipe;
    known_.complete(recipe, most_ranks_, runs_, [this](const std::string& line) { say(line); });
    plain_[first] = known_.predict(step_of(recipe));
    scale(r_.candidates[first], *plain_[first]);
  }

  [[noreturn]] void nothing_fits() const {
    std::string closest;
    if (r_.smallest)
      closest = fmt::format("The closest needs {} for a step: {}.", format_bytes(double(r_.smallest->step_bytes)),
                            change_text(*r_.smallest));
    throw Error(
        Exit::does_not_fit,
        fmt::format("none of the combinations fits {}{}", format_bytes(double(limit_of_rank(start_, device_, limit_))),
                    most_ranks_ > 1 ? ", the memory of a rank" : ""),
        "crest tune",
        fmt::format("{} Use a smaller model, a shorter --seq{}, or --vary optimizer.", closest,
                    most_ranks_ > 1 && device_.kind == "cuda" ? ", more --ranks" : ""));
  }

  // Adds micro batches of all sizes to each combination.
  void grow() {
    say(fmt::format("planning {} ...", format_number_of(int64_t(combinations_.size()), "combination")));
    // With a time limit, likely winners are planned first.
    std::vector<std::pair<double, const Combination*>> order;
    time_.divide_the_rest();
    const double planning = here_ ? time_.planning_ends() : 1;
    for (auto& c : combinations_) {
      bool first = batch_is_free() && time_.limited() && !time_.late(planning / 2);
      size_t i = first ? candidate(c, 1, least_accumulation(c)) : TuneResult::none;
      order.emplace_back(i == TuneResult::none ? 0 : -r_.candidates[i].rate(), &c);
    }
    std::stable_sort(order.begin(), order.end(), [](auto& a, auto& b) { return a.first < b.first; });
    for (auto& [rate, c] : order) {
      if (over(planning)) return;
      if (!batch_is_free()) {
        candidate(*c, start_.batch, start_.grad_accumulation);
      } else if (o_.global_batch > 0) {
        int64_t share = share_of_batch(c->given);
        for (int64_t b = 1; b <= share; ++b)
          if (share % b == 0 && candidate(*c, b, share / b) == TuneResult::none) break;
      } else {
        grow_batch(*c);
      }
    }
  }

  // Tries 1, 2, 3, 4, 6, 8, 12, ... while twice the batch is predicted to gain more than
  // `stop_below` (at least `within`), and a step to take at most twice the time limit of a measured
  // step. Then tries the largest that fits.
  void grow_batch(const Combination& c) {
    double least = 1 + std::max(o_.stop_below, o_.within);
    std::vector<size_t> list;
    for (int k = 0;; ++k) {
      int64_t b = k < 2 ? k + 1 : k % 2 ? int64_t(1) << (k + 1) / 2 : int64_t(3) << (k - 2) / 2;
      size_t i = candidate(c, b, start_.grad_accumulation);
      if (i == TuneResult::none) {
        add_largest(c, list.empty() ? 0 : r_.candidates[list.back()].recipe.batch, b);
        return;
      }
      list.push_back(i);
      if (here_ && k >= 2 && r_.candidates[i].ms() > 2e3 * o_.max_seconds) {
        r_.slow_batches = true;
        return;
      }
      if (k >= 4 && r_.candidates[list[size_t(k)]].rate() < least * r_.candidates[list[size_t(k) - 2]].rate()) return;
    }
  }

  // Adds the largest batch in [fits, too_large).
  void add_largest(const Combination& c, int64_t fits, int64_t too_large) {
    size_t before = r_.too_large;
    while (too_large - fits > 1) {
      int64_t middle = fits + (too_large - fits) / 2;
      (candidate(c, middle, start_.grad_accumulation) == TuneResult::none ? too_large : fits) = middle;
    }
    r_.too_large = before;
  }

  size_t budget() const {
    return o_.measure > 0 ? size_t(o_.measure) : std::clamp<size_t>(r_.candidates.size() / 10, 6, 24);
  }

  // Alternates: measures the candidate with the best prediction, then the one with the highest end
  // of its range. Learns from both, until no other can beat the fastest measured one.
  void measure_best() {
    auto expected = [](const TuneCandidate& c) { return c.rate(); };
    auto optimistic = [](const TuneCandidate& c) { return c.rate() * c.predicted->ms / c.predicted->low_ms; };
    for (size_t n = r_.measured(); n < budget() && !over(time_.measuring_ends()); ++n) {
      double fastest = fastest_measured();
      size_t likely = first_by(expected), possible = first_by(optimistic);
      if (possible == TuneResult::none || optimistic(r_.candidates[possible]) < fastest) break;
      bool try_likely = n % 2 == 0 && expected(r_.candidates[likely]) > fastest;
      measure(try_likely ? likely : possible);
    }
    if (o_.within > 0) measure_small();
  }

  // The unmeasured candidate with the largest value, if there is time to measure it.
  template <class F>
  size_t first_by(F value) {
    const double time = time_.left(time_.measuring_ends());
    size_t best = TuneResult::none;
    for (size_t i = 0; i < r_.candidates.size(); ++i) {
      const TuneCandidate& c = r_.candidates[i];
      if (c.measured_ms || !c.failed.empty()) continue;
      if (time_.to_measure(c.ms()) > time) {
        r_.out_of_time = true;
        continue;
      }
      if (best == TuneResult::none || value(c) > value(r_.candidates[best])) best = i;
    }
    return best;
  }

  // Measures the smallest candidate predicted within `within` of the fastest, until a measured one
  // is.
  void measure_small() {
    for (int tries = 0; tries < 3; ++tries) {
      double fastest = fastest_measured();
      size_t next = TuneResult::none;
      for (size_t i = 0; i < r_.candidates.size(); ++i) {
        const TuneCandidate& c = r_.candidates[i];
        if (!c.failed.empty() || c.rate() * (1 + o_.within) < fastest) continue;
        if (next == TuneResult::none || c.planned_bytes < r_.candidates[next].planned_bytes) next = i;
      }
      if (next == TuneResult::none || r_.candidates[next].measured_ms) return;
      if (time_.to_measure(r_.candidates[next].ms()) > time_.left(time_.measuring_ends())) return;
      measure(next);
    }
  }

  void finals() {
    size_t most = most_finalists;
    std::vector<size_t> list = finalists(r_, o_.within, most, learns() ? limit_ : std::numeric_limits<int64_t>::max());
    // As many as time allows.
    while (!list.empty() && seconds_of_rounds(list) > time_.left(1)) {
      list.pop_back();
      r_.out_of_time = true;
    }
    if (list.size() < 2) return;
    say(fmt::format("interleaved rounds of the {} fastest ...", list.size()));
    const RoundsOfFinalists rounds{o_, device_, r_, time_.left(1)};
    std::optional<AbResult> result;
    try {
      result = learns() ? rounds.here(list) : rounds.in_processes(list, runs_);
    } catch (const Error& e) {  // other processes took the memory: single measurements remain valid
      if (e.code() != Exit::does_not_fit) throw;
      say("no interleaved rounds: " + e.problem());
    }
    if (result) take(list, std::move(*result));
  }

  // For the fewest possible rounds.
  double seconds_of_rounds(const std::vector<size_t>& list) const {
    if (!time_.limited()) return 0;
    double seconds = 0;
    for (size_t i : list) {
      const double ms = r_.candidates[i].ms();
      seconds += learns() ? (fewest_rounds + 3) * 1e-3 * ms + time_.to_prepare() : fewest_rounds * time_.to_measure(ms);
    }
    return seconds;
  }

  void take(const std::vector<size_t>& list, AbResult result) {
    for (size_t k = 0; k < list.size(); ++k)
      r_.candidates[list[k]].final_ms = 1e3 * result.samples[k].median() / equal_tokens(r_, list, list[k]);
    r_.finals = std::move(result), r_.finalists = list;
  }

  // The fastest, or within noise of it the candidate with the fewest changes. With `within`, the
  // smallest candidate at that speed.
  void choose() {
    r_.noise = r_.finals ? r_.finals->noise_floor : least_noise;
    r_.tolerance = std::max(o_.within, r_.noise);
    std::vector<size_t> from = r_.finalists;
    if (from.empty())
      for (size_t i = 0; i < r_.candidates.size(); ++i)
        if (r_.candidates[i].measured_ms || !here_) from.push_back(i);
    r_.best = cheapest_of_fastest(r_, from, o_.within > 0);
    if (r_.best == TuneResult::none) fail_internal("a search measured nothing");
    r_.fastest = r_.best;
    // `within` limits the loss of speed, and its choice already has the least memory.
    if (batch_is_free() && o_.global_batch == 0 && o_.within == 0) r_.best = least_batch(r_, from, o_.stop_below);
  }

  const TuneOptions& o_;
  const Device& device_;
  int64_t limit_;
  const std::function<void(const std::string&)>& say_;
  const bool here_ = !device_.described;  // else nothing can be measured
  const ProcessRuns runs_{o_.process_flags, o_.seed};
  int most_ranks_ = 1;
  KnownTimes known_;
  double scale_ = 1;  // measured / predicted times of several ranks
  TimeModel model_;   // learns steps of one rank
  Recipe given_start_, start_;
  std::vector<TuneList> lists_;
  std::vector<Combination> combinations_;
  std::vector<ProfileRate> rates_;
  std::vector<TimeModel::Work> rows_;                 // by candidate, for one rank
  std::vector<std::optional<StepPrediction>> plain_;  // by candidate, otherwise: before scaling
  std::set<std::string> counted_;                     // too large or not allowed
  TuneResult r_;
  SearchTime time_{o_.search_seconds};
  double said_ = 0;  // time of the last line
};

}  // namespace

size_t TuneResult::measured() const {
  return size_t(std::count_if(candidates.begin(), candidates.end(), [](auto& c) { return c.measured_ms.has_value(); }));
}

TuneResult tune(const TuneOptions& options, const Device& device, int64_t limit, const Calibration* calibration,
                const std::function<void(const std::string&)>& say) {
  return Search(options, device, limit, calibration, say).run();
}

LongestContext longest_context(const TuneOptions& options, const Device& device, int64_t limit,
                               const Calibration* calibration, const std::function<void(const std::string&)>& say) {
  TuneOptions any_length = options;
  any_length.recipe.given["seq"] = {"1"};  // each candidate has its own length, so none needs the default
  return Search(any_length, device, limit, calibration, say).longest();
}

}  // namespace crest
