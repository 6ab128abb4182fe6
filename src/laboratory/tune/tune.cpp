#include "tune/tune.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>

#include "core/error.h"
#include "core/text.h"
#include "core/timer.h"
#include "passes/recompute.h"
#include "plan/plan_report.h"
#include "predict/defaults.h"
#include "predict/predicted_step.h"
#include "profile/profile_rates.h"
#include "tune/calibrate.h"
#include "tune/finalists.h"
#include "tune/search.h"

namespace crest {

static constexpr size_t most_finalists = 4;

TuneSearch::TuneSearch(const TuneOptions& o, const Device& device, int64_t limit, const Calibration* calibration,
                       const std::function<void(const std::string&)>& say)
    : o_(o), device_(device), limit_(limit), say_(say), known_(o, device, calibration), plans_(device, limit) {
  if (calibration)
    model_ = calibration->times;
  else if (device.kind == "cuda")
    model_.set_multiprocessors(device.multiprocessors);
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
  // Each schedule has its own cut, and each batch its choices by what fits (StepPlans), so a note
  // about the start's would mislead.
  const bool quiet = given_start_.seq > 0 && recompute_budget(given_start_.recompute).empty();
  given_start_ = with_defaults(given_start_, device, limit_of_rank(given_start_, device, limit), "", quiet);
  for (const char* name : {"stages", "fp8-weights", "loss-chunk"})
    if (!o.recipe.has(name)) given_start_.pass_settings.erase(name);
  start_ = resolve(given_start_, device);
}

TuneResult TuneSearch::run() {
  size_t first = start();
  if (here_) seed(first);
  grow();
  if (!here_ && o_.global_batch > 0 && batch_is_free()) {
    grow_offloaded();
    mix_levels();
  }
  if (here_) {
    measure_best();
    if (r_.measured() == 0) nothing_fits();
    finals();
  }
  choose();
  if (!here_) r_.not_here = device_.name, r_.prediction = known_.text(plans_.step_of(r_.candidates[r_.best].recipe));
  r_.seconds = time_.seconds();
  return std::move(r_);
}

bool TuneSearch::over(double share) {
  bool is = time_.late(share);
  r_.out_of_time |= is;
  return is;
}

void TuneSearch::rates() {
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

size_t TuneSearch::candidate(const Combination& c, int64_t batch, int64_t accumulation) {
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
  const std::optional<PlannedStep> plan = planned(given, t);
  if (plan && !here_) add_level(c, *plan);
  if (!plan || !plan->fits || !predict(t, plan->step)) return TuneResult::none;
  if (t.changes.empty()) r_.start = r_.candidates.size();
  r_.candidates.push_back(std::move(t));
  return r_.candidates.size() - 1;
}

bool TuneSearch::predict(TuneCandidate& t, const CompiledSession& session) {
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

bool TuneSearch::asked_for(const std::string& setting) const {
  return o_.recipe.has(setting) || std::any_of(o_.vary.begin(), o_.vary.end(), [&](auto& text) {
           return text == setting || text.starts_with(setting + "=");
         });
}

void TuneSearch::measure(size_t i) {
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

double TuneSearch::fastest_measured() const {
  double fastest = 0;
  for (auto& c : r_.candidates)
    if (c.measured_ms) fastest = std::max(fastest, c.rate());
  return fastest;
}

const TuneCombination* TuneSearch::as_given() const {
  for (auto& c : combinations_)
    if (c.changes.empty()) return &c;
  return nullptr;
}

void TuneSearch::seed(size_t first) {
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

void TuneSearch::seed_ranks(size_t first) {
  const Recipe& recipe = r_.candidates[first].recipe;
  known_.complete(recipe, most_ranks_, runs_, [this](const std::string& line) { say(line); });
  plain_[first] = known_.predict(plans_.step_of(recipe));
  scale(r_.candidates[first], *plain_[first]);
}

double TuneSearch::least_predicted_ms() const {
  double least = std::numeric_limits<double>::infinity();
  for (auto& c : r_.candidates) least = std::min(least, c.predicted->ms);
  return least;
}

template <class F>
size_t TuneSearch::first_by(F value) {
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

void TuneSearch::measure_best() {
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

void TuneSearch::measure_small() {
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

void TuneSearch::finals() {
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

double TuneSearch::seconds_of_rounds(const std::vector<size_t>& list) const {
  if (!time_.limited()) return 0;
  double seconds = 0;
  for (size_t i : list) {
    const double ms = r_.candidates[i].ms();
    seconds += learns() ? (fewest_rounds + 3) * 1e-3 * ms + time_.to_prepare() : fewest_rounds * time_.to_measure(ms);
  }
  return seconds;
}

void TuneSearch::take(const std::vector<size_t>& list, AbResult result) {
  for (size_t k = 0; k < list.size(); ++k)
    r_.candidates[list[k]].final_ms = 1e3 * result.samples[k].median() / equal_tokens(r_, list, list[k]);
  r_.finals = std::move(result), r_.finalists = list;
}

void TuneSearch::choose() {
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

size_t TuneResult::measured() const {
  return size_t(std::count_if(candidates.begin(), candidates.end(), [](auto& c) { return c.measured_ms.has_value(); }));
}

TuneResult tune(const TuneOptions& options, const Device& device, int64_t limit, const Calibration* calibration,
                const std::function<void(const std::string&)>& say) {
  return TuneSearch(options, device, limit, calibration, say).run();
}

LongestContext longest_context(const TuneOptions& options, const Device& device, int64_t limit,
                               const Calibration* calibration, const std::function<void(const std::string&)>& say) {
  TuneOptions any_length = options;
  any_length.recipe.given["seq"] = {"1"};  // each candidate has its own length, so none needs the default
  return TuneSearch(any_length, device, limit, calibration, say).longest();
}

}  // namespace crest
