#include "tune/tune.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <set>

#include "core/error.h"
#include "core/text.h"
#include "plan/search.h"
#include "predict/planned_time.h"
#include "profile/profile_rates.h"
#include "tune/calibrate.h"

namespace crest {

namespace {

constexpr int most_combinations = 2000;
constexpr size_t most_finalists = 4;
constexpr double planning = 0.5;  // of the time limit

std::string value_of(const Recipe& recipe, const std::string& name) { return settings_of(recipe).at(name).text(); }

class Search {
 public:
  Search(const TuneOptions& o, const Device& device, int64_t limit, const Calibration* calibration,
         const std::function<void(const std::string&)>& say)
      : o_(o), device_(device), limit_(limit), say_(say) {
    if (calibration) model_ = calibration->times;
    rates_ = model_.rates();
    given_start_ = o.recipe.finish(default_model(device));
    if (o.global_batch > 0) given_start_.grad_accumulation = 1, given_start_.batch = o.global_batch;
    start_ = resolve(given_start_, device);
    if (start_.world_size() > 1)
      fail_usage("only the steps of one rank are tuned", "--ranks, --data-parallel", "Tune one rank.");
    lists_ = tune_lists(o, given_start_);
  }

  TuneResult run() {
    combine();
    seed();
    grow();
    measure_best();
    finals();
    choose();
    r_.seconds = elapsed();
    return std::move(r_);
  }

  LongestContext longest() {
    LongestContext result;
    combine();
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
    result.seconds = elapsed();
    return result;
  }

 private:
  using Changes = std::vector<std::pair<std::string, std::string>>;
  struct Combination {
    Changes changes;
    Recipe given;  // not resolved
  };

  bool batch_is_free() const { return !o_.recipe.has("batch"); }

  using Clock = std::chrono::steady_clock;
  double elapsed() const { return std::chrono::duration<double>(Clock::now() - begin_).count(); }
  bool late(double share) const { return o_.search_seconds > 0 && elapsed() > share * o_.search_seconds; }
  // Whether this share of the search's time is over, which ends a part of the search.
  bool over(double share) {
    bool is = late(share);
    r_.out_of_time |= is;
    return is;
  }
  void say(const std::string& what) {
    said_ = elapsed();
    say_(fmt::format("{:>4.0f} s  {}", said_, what));
  }

  // Every combination of the lists; those that differ from the start only in how a value is written
  // (auto, and what it stands for) are one.
  void combine() {
    std::vector<Combination> all = {{{}, given_start_}};
    for (auto& list : lists_) {
      std::vector<Combination> next;
      std::string own = value_of(given_start_, list.name);
      std::vector<std::string> values = list.values;
      if (std::none_of(values.begin(), values.end(), [&](auto& v) { return is_start(list.name, v); }))
        values.insert(values.begin(), own);
      for (auto& c : all)
        for (auto& value : values) {
          Combination d = c;
          settings_of(d.given).apply({{list.name, {value}}});
          if (resolved_value(d.given, list.name) != value_of(start_, list.name))
            d.changes.push_back({list.name, value});
          next.push_back(std::move(d));
        }
      all = std::move(next);
      if (all.size() > most_combinations)
        fail_usage(fmt::format("more than {} combinations", most_combinations), "--vary", "Vary fewer settings.");
    }
    std::set<std::string> seen;
    for (auto& c : all) {
      try {
        if (seen.insert(join(recipe_flags(resolve(c.given, device_)), " ")).second) combinations_.push_back(c);
      } catch (const Error& e) {
        if (e.code() != Exit::usage) throw;
        ++r_.not_allowed;
      }
    }
  }

  bool is_start(const std::string& name, const std::string& value) const {
    Recipe r = given_start_;
    settings_of(r).apply({{name, {value}}});
    return resolved_value(r, name) == value_of(start_, name);
  }

  std::string resolved_value(const Recipe& given, const std::string& name) const {
    try {
      return value_of(resolve(given, device_), name);
    } catch (const Error& e) {
      if (e.code() != Exit::usage) throw;
      return value_of(given, name);
    }
  }

  // Limits for the arithmetic of all precisions that are varied.
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
    rates_ = step_rates(steps, device_, rates_);
  }

  // Plans and predicts; none where it does not fit or is not allowed.
  size_t candidate(const Combination& c, int64_t batch, int64_t accumulation) {
    TuneCandidate t;
    t.changes = c.changes;
    Recipe given = c.given;
    given.batch = batch, given.grad_accumulation = accumulation;
    for (auto [name, value, from] : {std::tuple{"batch", batch, start_.batch},
                                     std::tuple{"grad-accumulation", accumulation, start_.grad_accumulation}})
      if (value != from) t.changes.push_back({name, std::to_string(value)});
    try {
      check_interrupt();
      if (elapsed() > said_ + 5) say(fmt::format("{} planned ...", r_.candidates.size()));
      t.recipe = resolve(given, device_);
      for (size_t i = 0; i < r_.candidates.size(); ++i)
        if (r_.candidates[i].changes == t.changes) return i;
      CompiledSession session = compile_phase(t.recipe, device_, BenchPhase::step, {.verify = false});
      t.planned_bytes = session.planned_bytes();
      if (t.planned_bytes > limit_) {
        if (counted_.insert(change_text(t)).second) ++r_.too_large;
        if (!r_.smallest || t.planned_bytes < r_.smallest->planned_bytes) r_.smallest = t;
        return TuneResult::none;
      }
      rows_.push_back(TimeModel::prepare(step_rows(session)));
    } catch (const Error& e) {
      if (e.code() != Exit::usage) throw;
      if (counted_.insert(change_text(t)).second) ++r_.not_allowed;
      return TuneResult::none;
    }
    if (model_.steps()) t.predicted = model_.predict(rows_.back());
    if (t.changes.empty()) r_.start = r_.candidates.size();
    r_.candidates.push_back(std::move(t));
    return r_.candidates.size() - 1;
  }

  void check_interrupt() const { o_.check_interrupt(); }

  // With a context of `length` tokens and as long a sequence; none where it does not fit.
  std::optional<TuneCandidate> with_context(const Combination& c, int64_t length) {
    check_interrupt();
    TuneCandidate t;
    t.changes = c.changes;
    Recipe given = c.given;
    given.batch = batch_is_free() ? 1 : start_.batch;
    given.model.context = given.seq = length;
    if (given.batch != start_.batch) t.changes.emplace_back("batch", std::to_string(given.batch));
    t.changes.emplace_back("context", std::to_string(length));
    t.changes.emplace_back("seq", std::to_string(length));
    try {
      t.recipe = resolve(given, device_);
      CompiledSession session = compile_phase(t.recipe, device_, BenchPhase::step, {.verify = false});
      t.planned_bytes = session.planned_bytes();
      if (t.planned_bytes > limit_) {
        if (!r_.smallest || t.planned_bytes < r_.smallest->planned_bytes) r_.smallest = t;
        return std::nullopt;
      }
      if (model_.steps()) t.predicted = model_.predict(step_rows(session));
    } catch (const Error& e) {
      if (e.code() != Exit::usage) throw;
      return std::nullopt;
    }
    return t;
  }

  // The longest context of a combination, if it is longer than `known`: doubled until it does not
  // fit, then bisected.
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
    try {
      Profile p = measure_step(
          c.recipe, device_, limit_,
          {.max_seconds = o_.max_seconds, .seed = o_.seed, .rates = rates_, .before_run = o_.check_interrupt});
      c.measured_ms = p.step_median_ms();
      model_.add(p);
    } catch (const Error& e) {
      if (e.code() != Exit::does_not_fit) throw;
      c.failed = e.problem();
    }
    for (size_t k = 0; k < r_.candidates.size(); ++k)  // of the measured ones the prediction of before stays
      if (!r_.candidates[k].measured_ms) r_.candidates[k].predicted = model_.predict(rows_[k]);
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

  // Measures the start, or, if it does not fit, the first combination that fits with one sequence:
  // from these the time of the others is predicted.
  void seed() {
    const Combination* plain = nullptr;
    for (auto& c : combinations_)
      if (c.changes.empty()) plain = &c;
    size_t first = TuneResult::none;
    if (plain) first = candidate(*plain, start_.batch, start_.grad_accumulation);
    for (auto& c : combinations_) {
      if (first != TuneResult::none) break;
      first = batch_is_free() ? candidate(c, 1, o_.global_batch > 0 ? o_.global_batch : start_.grad_accumulation)
                              : candidate(c, start_.batch, start_.grad_accumulation);
    }
    if (first == TuneResult::none) nothing_fits();
    rates();
    measure(first);
    if (!model_.steps()) nothing_fits();
    // One sequence tells what a step costs before its first token.
    if (!plain || !batch_is_free() || o_.global_batch > 0 || start_.batch == 1) return;
    if (size_t one = candidate(*plain, 1, start_.grad_accumulation); one != TuneResult::none) measure(one);
  }

  [[noreturn]] void nothing_fits() const {
    std::string closest = r_.smallest
                              ? fmt::format("The closest needs {}: {}.",
                                            format_bytes(double(r_.smallest->planned_bytes)), change_text(*r_.smallest))
                              : "";
    throw Error(Exit::does_not_fit, fmt::format("none of the combinations fits {}", format_bytes(double(limit_))),
                "crest tune", closest + " Use a smaller model, a shorter --seq, or --vary optimizer.");
  }

  // The sizes of the micro batch for each combination.
  void grow() {
    say(fmt::format("planning {} ...", format_number_of(int64_t(combinations_.size()), "combination")));
    // With a time limit the likely ones are planned first.
    std::vector<std::pair<double, const Combination*>> order;
    bool free = batch_is_free() && o_.global_batch == 0;
    for (auto& c : combinations_) {
      size_t i = free && o_.search_seconds > 0 && !late(planning / 2) ? candidate(c, 1, start_.grad_accumulation)
                                                                      : TuneResult::none;
      order.emplace_back(i == TuneResult::none ? 0 : -r_.candidates[i].rate(), &c);
    }
    std::stable_sort(order.begin(), order.end(), [](auto& a, auto& b) { return a.first < b.first; });
    for (auto& [rate, c] : order) {
      if (over(planning)) return;
      if (!batch_is_free()) {
        candidate(*c, start_.batch, start_.grad_accumulation);
      } else if (o_.global_batch > 0) {
        for (int64_t b = 1; b <= o_.global_batch; ++b)
          if (o_.global_batch % b == 0 && candidate(*c, b, o_.global_batch / b) == TuneResult::none) break;
      } else {
        grow_batch(*c);
      }
    }
  }

  // 1, 2, 3, 4, 6, 8, 12, ... as long as twice the batch is predicted to bring more than
  // `stop_below` (at least `within`) and a step to take at most twice the time limit of a measured
  // step; and the largest that fits.
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
      if (k >= 2 && r_.candidates[i].ms() > 2e3 * o_.max_seconds) {
        r_.slow_batches = true;
        return;
      }
      if (k >= 4 && r_.candidates[list[size_t(k)]].rate() < least * r_.candidates[list[size_t(k) - 2]].rate()) return;
    }
  }

  // The largest batch in [fits, too_large).
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

  // Measures the one that is predicted to be the fastest, then the one that may be it, and so on,
  // and learns, until none of the others can be faster than the fastest measured one.
  void measure_best() {
    auto expected = [](const TuneCandidate& c) { return c.rate(); };
    auto optimistic = [](const TuneCandidate& c) { return c.rate() * c.predicted->ms / c.predicted->low_ms; };
    for (size_t n = r_.measured(); n < budget() && !over(1); ++n) {
      double fastest = fastest_measured();
      size_t likely = first_by(expected), possible = first_by(optimistic);
      if (possible == TuneResult::none || optimistic(r_.candidates[possible]) < fastest) break;
      bool try_likely = n % 2 == 0 && expected(r_.candidates[likely]) > fastest;
      measure(try_likely ? likely : possible);
    }
    if (o_.within > 0) measure_small();
  }

  // Of those that were not measured, the one with the largest value.
  template <class F>
  size_t first_by(F value) const {
    size_t best = TuneResult::none;
    for (size_t i = 0; i < r_.candidates.size(); ++i) {
      const TuneCandidate& c = r_.candidates[i];
      if (c.measured_ms || !c.failed.empty()) continue;
      if (best == TuneResult::none || value(c) > value(r_.candidates[best])) best = i;
    }
    return best;
  }

  // The smallest that is predicted to be within `within` of the fastest, until one of them is.
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
      measure(next);
    }
  }

  // The fastest measured ones, the start first, as far as they fit together.
  void finals() {
    std::vector<size_t> order;
    for (size_t i = 0; i < r_.candidates.size(); ++i)
      if (r_.candidates[i].measured_ms) order.push_back(i);
    std::sort(order.begin(), order.end(),
              [&](size_t a, size_t b) { return r_.candidates[a].rate() > r_.candidates[b].rate(); });
    std::vector<size_t> list;
    if (r_.start != TuneResult::none && r_.candidates[r_.start].measured_ms) list.push_back(r_.start);
    int64_t bytes = list.empty() ? 0 : r_.candidates[r_.start].planned_bytes;
    // With `within`, the smallest at that speed is one of them.
    if (o_.within > 0) {
      auto smallest = order.end();
      for (auto it = order.begin(); it != order.end(); ++it) {
        const TuneCandidate& c = r_.candidates[*it];
        if (c.rate() * (1 + o_.within) >= r_.candidates[order[0]].rate() &&
            (smallest == order.end() || c.planned_bytes < r_.candidates[*smallest].planned_bytes))
          smallest = it;
      }
      if (smallest - order.begin() > 1) std::rotate(order.begin() + 1, smallest, smallest + 1);
    }
    for (size_t i : order) {
      if (list.size() == most_finalists - (r_.out_of_time ? 1 : 0)) break;
      if (i == r_.start || bytes + r_.candidates[i].planned_bytes > limit_) continue;
      list.push_back(i), bytes += r_.candidates[i].planned_bytes;
    }
    if (list.size() < 2) return;
    say(fmt::format("interleaved rounds of the {} fastest ...", list.size()));
    std::vector<std::unique_ptr<BenchCell>> cells;
    std::vector<Contender> contenders;
    std::vector<size_t> built;
    for (size_t i : list) {
      const Recipe& recipe = r_.candidates[i].recipe;
      try {
        cells.push_back(
            std::make_unique<BenchCell>(compile_phase(recipe, device_, BenchPhase::step), BenchPhase::step, o_.seed));
      } catch (const std::bad_alloc&) {  // together they need more than the system has left
        continue;
      } catch (const Error& e) {
        if (e.code() != Exit::does_not_fit) throw;
        continue;
      }
      built.push_back(i);
    }
    if (built.size() < 2) return;
    list = built;
    double tokens = double(r_.candidates[list[0]].recipe.tokens_per_step());
    for (size_t k = 0; k < list.size(); ++k) {
      double scale = tokens / double(r_.candidates[list[k]].recipe.tokens_per_step());  // as many tokens as the first
      contenders.push_back({change_text(r_.candidates[list[k]]), [&, cell = cells[k].get(), scale] {
                              check_interrupt();
                              return cell->run() * scale;
                            }});
    }
    double seconds = o_.search_seconds > 0 ? std::min(8 * o_.max_seconds, o_.search_seconds / 4) : 8 * o_.max_seconds;
    AbRule rule{.warmup_rounds = 2, .min_rounds = 8, .max_rounds = 30, .max_seconds = seconds};
    r_.finals = compare_interleaved(contenders, rule);
    r_.finalists = list;
    for (size_t k = 0; k < list.size(); ++k) {
      TuneCandidate& c = r_.candidates[list[k]];
      c.final_ms = 1e3 * r_.finals->samples[k].median() * double(c.recipe.tokens_per_step()) / tokens;
    }
  }

  // The fastest; of those that differ by no more than the noise, the one with the fewest changes.
  // With `within`, the smallest of those that are no slower than that.
  void choose() {
    double noise = r_.finals ? r_.finals->noise_floor : 0;
    r_.tolerance = std::max(o_.within, noise);
    std::vector<size_t> from = r_.finalists;
    if (from.empty())
      for (size_t i = 0; i < r_.candidates.size(); ++i)
        if (r_.candidates[i].measured_ms) from.push_back(i);
    double fastest = 0;
    for (size_t i : from) fastest = std::max(fastest, r_.candidates[i].rate());
    auto cost = [&](size_t i) {
      const TuneCandidate& c = r_.candidates[i];
      return std::tuple(o_.within > 0 ? c.planned_bytes : 0, c.changes.size(), -c.rate());
    };
    r_.best = TuneResult::none;
    for (size_t i : from) {
      if (r_.candidates[i].rate() * (1 + r_.tolerance) < fastest) continue;
      if (r_.best == TuneResult::none || cost(i) < cost(r_.best)) r_.best = i;
    }
    if (r_.best == TuneResult::none) fail_internal("a search measured nothing");
    if (batch_is_free() && o_.global_batch == 0) settle_for_less(from);
  }

  // A smaller batch of the same other settings, if each doubling from it brings less than
  // `stop_below`.
  void settle_for_less(const std::vector<size_t>& from) {
    auto others = [](const TuneCandidate& c) {
      auto changes = c.changes;
      std::erase_if(changes, [](auto& change) { return change.first == "batch"; });
      return changes;
    };
    const TuneCandidate& best = r_.candidates[r_.best];
    size_t least = r_.best;
    for (size_t i : from) {
      const TuneCandidate& c = r_.candidates[i];
      if (c.recipe.batch >= r_.candidates[least].recipe.batch || others(c) != others(best)) continue;
      double doublings = std::log2(double(best.recipe.batch) / double(c.recipe.batch));
      if (best.rate() < c.rate() * std::pow(1 + o_.stop_below, doublings)) least = i;
    }
    r_.best = least;
  }

  const TuneOptions& o_;
  const Device& device_;
  int64_t limit_;
  const std::function<void(const std::string&)>& say_;
  TimeModel model_;
  Recipe given_start_, start_;
  std::vector<TuneList> lists_;
  std::vector<Combination> combinations_;
  std::vector<ProfileRate> rates_;
  std::vector<TimeModel::Work> rows_;  // of each candidate
  std::set<std::string> counted_;      // as too large or not allowed
  TuneResult r_;
  Clock::time_point begin_ = Clock::now();
  double said_ = 0;  // when the last line was
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
  return Search(options, device, limit, calibration, say).longest();
}

}  // namespace crest
