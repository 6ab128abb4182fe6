// The candidates of a search: combinations with micro batches of all sizes.
#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "core/error.h"
#include "core/text.h"
#include "plan/plan_report.h"
#include "predict/predicted_step.h"
#include "tune/search.h"

namespace crest {

// Of predictions alone: batches whose layers get different levels of recompute, and the least gain
// that is worth planning more.
static constexpr int most_mixes = 4;
static constexpr double worth_trying = 0.003;

LongestContext TuneSearch::longest() {
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

std::optional<PlannedStep> TuneSearch::planned(const Recipe& given, TuneCandidate& t) {
  try {
    PlannedStep plan = plans_.plan(given);
    t.recipe = plan.recipe, t.planned_bytes = plan.bytes, t.step_bytes = plan.step.planned_bytes();
    if (plan.fits) return plan;
    if (counted_.insert(change_text(t)).second) ++r_.too_large;
    if (!r_.smallest || t.step_bytes < r_.smallest->step_bytes) r_.smallest = t;
    return plan;
  } catch (const Error& e) {
    if (e.code() != Exit::usage) throw;
    if (counted_.insert(change_text(t)).second) ++r_.not_allowed;
  }
  return std::nullopt;
}

void TuneSearch::add_level(const Combination& c, const PlannedStep& plan) {
  if (plan.recipe.recompute.find('=') != std::string::npos) return;  // a mix already
  const Combination key = without_changes(c, {"recompute", "loss-chunk"});
  auto same = [&](auto& other) { return other.changes == key.changes; };
  const auto i = size_t(std::find_if(mixes_.begin(), mixes_.end(), same) - mixes_.begin());
  if (i == mixes_.size()) mixes_.push_back(key);
  if (const std::optional<StepPrediction> p = known_.predict(plan.step))
    levels_.add(i, plan.recipe.batch, plan.recipe.recompute, plan.bytes, p->ms);
}

std::optional<TuneCandidate> TuneSearch::with_context(const Combination& c, int64_t length) {
  o_.check_interrupt();
  TuneCandidate t;
  t.changes = c.changes;
  Recipe given = c.given;
  given.batch = batch_is_free() ? 1 : start_.batch;
  given.model.context = given.seq = length;
  if (given.batch != start_.batch) t.changes.emplace_back("batch", std::to_string(given.batch));
  t.changes.emplace_back("context", std::to_string(length));
  t.changes.emplace_back("seq", std::to_string(length));
  const std::optional<PlannedStep> plan = planned(given, t);
  if (!plan || !plan->fits) return std::nullopt;
  if (!learns())
    t.predicted = known_.predict(plan->step);
  else if (model_.steps())
    t.predicted = model_.predict(step_rows(plan->step));
  return t;
}

std::optional<TuneCandidate> TuneSearch::longest_of(const Combination& c, int64_t known) {
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

size_t TuneSearch::start() {
  combinations_ = combinations_of(lists_, given_start_, device_, r_.not_allowed);
  if (o_.global_batch > 0)  // some numbers of ranks cannot share it
    r_.not_allowed += int64_t(std::erase_if(combinations_, [&](auto& c) { return share_of_batch(c.given) == 0; }));
  size_t first = first_that_fits();
  if (first == TuneResult::none && may_offload()) {
    say("nothing fits: with the optimizer's state in host memory ...");
    for (auto& c : combinations_) c = with_change(c, "offload", "optimizer");
    offloads_ = true;
    first = first_that_fits();
  }
  if (first == TuneResult::none) nothing_fits();
  return first;
}

size_t TuneSearch::first_that_fits() {
  size_t first = TuneResult::none;
  if (const Combination* plain = as_given()) first = candidate(*plain, start_.batch, start_.grad_accumulation);
  // Predictions alone need not start at the settings as given: if the most recompute does not fit,
  // nothing does.
  auto repeats = [](auto& list) { return list.name == "recompute"; };
  const bool only_full = !here_ && std::any_of(lists_.begin(), lists_.end(), repeats);
  for (auto& c : combinations_) {
    if (first != TuneResult::none) break;
    if (only_full && resolve(c.given, device_).recompute != "full") continue;
    first = candidate(c, batch_is_free() ? 1 : start_.batch, least_accumulation(c));
  }
  return first;
}

void TuneSearch::nothing_fits() const {
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

void TuneSearch::grow() {
  say(fmt::format("planning {} ...", format_number_of(int64_t(combinations_.size()), "combination")));
  time_.divide_the_rest();
  grow(combinations_, here_ ? time_.planning_ends() : o_.global_batch > 0 ? 0.5 : 1);
}

void TuneSearch::grow(const std::vector<Combination>& combinations, double planning) {
  // With a time limit, likely winners are planned first.
  Order order;
  for (auto& c : combinations) {
    bool first = batch_is_free() && (time_.limited() || !here_) && !time_.late(planning / 2) && !is_one_chunk(c, 1);
    size_t i = first ? candidate(c, 1, least_accumulation(c)) : TuneResult::none;
    order.emplace_back(i == TuneResult::none ? 0 : -r_.candidates[i].rate(), &c);
  }
  std::stable_sort(order.begin(), order.end(), [](auto& a, auto& b) { return a.first < b.first; });
  for (auto& [rate, c] : order) {
    if (over(planning)) return;
    if (!here_ && another_attention_is_faster(*c, order)) continue;
    if (!batch_is_free()) {
      candidate(*c, start_.batch, start_.grad_accumulation);
    } else if (o_.global_batch > 0) {
      int64_t share = share_of_batch(c->given);
      for (int64_t b = 1; b <= share; ++b)
        if (share % b == 0 && !is_one_chunk(*c, b) && candidate(*c, b, share / b) == TuneResult::none) break;
    } else {
      grow_batch(*c);
    }
  }
}

bool TuneSearch::another_attention_is_faster(const Combination& c, const Order& order) const {
  auto others = [](const Combination& x) { return without_changes(x, {"attention", "loss-chunk"}).changes; };
  double own = 0;
  for (auto& [rate, other] : order)
    if (other->changes == without_changes(c, {"loss-chunk"}).changes) own = rate;
  return std::any_of(order.begin(), order.end(), [&](auto& other) {
    return other.first < own && changed_to(*other.second, "attention") != changed_to(c, "attention") &&
           others(*other.second) == others(c);
  });
}

void TuneSearch::grow_offloaded() {
  if (offloads_ || !may_offload() || levels_.fastest() > (1 - worth_trying) * least_predicted_ms()) return;
  say("with the optimizer's state in host memory ...");
  std::vector<Combination> offloaded;
  for (auto& c : combinations_)
    if (changed_to(c, "loss-chunk").empty() && changed_to(c, "attention").empty())
      offloaded.push_back(with_change(c, "offload", "optimizer"));
  grow(offloaded, 0.8);
}

void TuneSearch::mix_levels() {
  const StepTimer timer = {.ms =
                               [this](auto& session, auto&) {
                                 o_.check_interrupt();
                                 return known_.predict(session)->ms;
                               },
                           .source = "",
                           .absolute = true};
  const int64_t limit = limit_of_rank(start_, device_, limit_);
  const bool varied = std::any_of(lists_.begin(), lists_.end(), [](auto& l) { return l.name == "recompute"; });
  int mixes = 0;
  for (const LevelMix::Promise& promise : varied ? levels_.promises(limit) : std::vector<LevelMix::Promise>()) {
    if (++mixes > most_mixes || promise.ms > (1 - worth_trying) * least_predicted_ms() || over(1)) return;
    Combination c = mixes_[promise.settings];
    c.given.batch = promise.batch, c.given.grad_accumulation = share_of_batch(c.given) / promise.batch;
    say(fmt::format("recompute of each layer for batch {} ...", promise.batch));
    if (auto best = mixed(c, device_, limit, timer)) candidate(*best, c.given.batch, c.given.grad_accumulation);
  }
}

void TuneSearch::grow_batch(const Combination& c) {
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

void TuneSearch::add_largest(const Combination& c, int64_t fits, int64_t too_large) {
  size_t before = r_.too_large;
  while (too_large - fits > 1) {
    int64_t middle = fits + (too_large - fits) / 2;
    (candidate(c, middle, start_.grad_accumulation) == TuneResult::none ? too_large : fits) = middle;
  }
  r_.too_large = before;
}

}  // namespace crest
