// The search of crest tune: plans candidates (grow.cpp), measures some and chooses (tune.cpp).
#pragma once
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "passes/loss_chunk.h"
#include "tune/combinations.h"
#include "tune/known_times.h"
#include "tune/level_mix.h"
#include "tune/search_time.h"
#include "tune/step_plans.h"
#include "tune/tune.h"

namespace crest {

class TuneSearch {
 public:
  TuneSearch(const TuneOptions& o, const Device& device, int64_t limit, const Calibration* calibration,
             const std::function<void(const std::string&)>& say);

  TuneResult run();
  LongestContext longest();

 private:
  using Combination = TuneCombination;
  using Order = std::vector<std::pair<double, const Combination*>>;  // -tokens per second with one sequence, or 0

  bool batch_is_free() const { return !o_.recipe.has("batch"); }

  // Whether this share of the search's time is over. If so, the current part ends.
  bool over(double share);
  void say(const std::string& what) {
    said_ = time_.seconds();
    say_(fmt::format("{:>4.0f} s  {}", said_, what));
  }

  // Sequences of one rank in a step; 0: the ranks cannot share them.
  int64_t share_of_batch(const Recipe& r) const {
    return o_.global_batch % r.data_ranks() ? 0 : o_.global_batch / r.data_ranks();
  }

  // Measures the device limits for all varied precisions.
  void rates();

  // Plans and predicts; none if it does not fit or is not allowed.
  size_t candidate(const Combination& c, int64_t batch, int64_t accumulation);

  // None if it is not allowed.
  std::optional<PlannedStep> planned(const Recipe& given, TuneCandidate& t);

  // For mix_levels().
  void add_level(const Combination& c, const PlannedStep& plan);

  // Steps of one rank: predicted from all measurements so far. Steps of several ranks: predicted
  // from known times, scaled by their mean error so far. False on a described device in an unknown
  // precision, unless the user asked for it.
  bool predict(TuneCandidate& t, const CompiledSession& session);
  bool asked_for(const std::string& setting) const;

  void scale(TuneCandidate& t, StepPrediction p) const {
    p.ms *= scale_, p.low_ms *= scale_, p.high_ms *= scale_;
    t.predicted = std::move(p), t.scale = scale_;
  }

  bool learns() const { return here_ && most_ranks_ == 1; }

  // With a context and sequence of `length` tokens; none if it does not fit.
  std::optional<TuneCandidate> with_context(const Combination& c, int64_t length);

  // The longest context of a combination, if it is longer than `known`: doubled until it no longer
  // fits, then bisected.
  std::optional<TuneCandidate> longest_of(const Combination& c, int64_t known);
  void measure(size_t i);
  double fastest_measured() const;

  // Makes the combinations and finds the first that fits: the settings as given, or another
  // combination with one sequence. If none fits, the optimizer's state moves to host memory.
  size_t start();

  bool may_offload() const {  // a CPU's memory is host memory
    return device_.kind == "cuda" && !o_.recipe.has("offload") &&
           std::none_of(lists_.begin(), lists_.end(), [](auto& list) { return list.name == "offload"; });
  }
  size_t first_that_fits();
  const Combination* as_given() const;

  // The micro steps of a step with one sequence each.
  int64_t least_accumulation(const Combination& c) const {
    return o_.global_batch > 0 ? share_of_batch(c.given) : start_.grad_accumulation;
  }

  // Measures the first fitting candidate, to predict the others from it.
  void seed(size_t first);
  void seed_ranks(size_t first);
  [[noreturn]] void nothing_fits() const;

  // Adds micro batches of all sizes to each combination.
  void grow();
  // Of these combinations, until this share of the search's time is over.
  void grow(const std::vector<Combination>& combinations, double planning);

  // Predicted for one sequence. On a device that cannot be measured this is enough.
  bool another_attention_is_faster(const Combination& c, const Order& order) const;

  // Whether this is the same as the start's chunks of the loss.
  bool is_one_chunk(const Combination& c, int64_t batch) const {
    return changed_to(c, "loss-chunk") == "off" && batch * c.given.padded_seq() <= loss_chunk_of(start_);
  }
  double least_predicted_ms() const;

  // If some step is faster but too large: with the optimizer's state in host memory.
  void grow_offloaded();

  // Different levels of recompute in the layers, where this promises less time than one level.
  void mix_levels();

  // Tries 1, 2, 3, 4, 6, 8, 12, ... while twice the batch is predicted to gain more than
  // `stop_below` (at least `within`), and a step to take at most twice the time limit of a measured
  // step. Then tries the largest that fits.
  void grow_batch(const Combination& c);

  // Adds the largest batch in [fits, too_large).
  void add_largest(const Combination& c, int64_t fits, int64_t too_large);

  size_t budget() const {
    return o_.measure > 0 ? size_t(o_.measure) : std::clamp<size_t>(r_.candidates.size() / 10, 6, 24);
  }

  // Alternates: measures the candidate with the best prediction, then the one with the highest end
  // of its range. Learns from both, until no other can beat the fastest measured one.
  void measure_best();

  // The unmeasured candidate with the largest value, if there is time to measure it.
  template <class F>
  size_t first_by(F value);

  // Measures the smallest candidate predicted within `within` of the fastest, until a measured one
  // is.
  void measure_small();
  void finals();

  // For the fewest possible rounds.
  double seconds_of_rounds(const std::vector<size_t>& list) const;
  void take(const std::vector<size_t>& list, AbResult result);

  // The fastest, or within noise of it the candidate with the fewest changes. With `within`, the
  // smallest candidate at that speed.
  void choose();

  const TuneOptions& o_;
  const Device& device_;
  int64_t limit_;
  const std::function<void(const std::string&)>& say_;
  const bool here_ = !device_.described;  // else nothing can be measured
  const ProcessRuns runs_{o_.process_flags, o_.seed};
  int most_ranks_ = 1;
  KnownTimes known_;
  StepPlans plans_;
  LevelMix levels_;                 // of predicted steps, by index in mixes_
  std::vector<Combination> mixes_;  // without recompute and chunks of the loss
  bool offloads_ = false;           // all combinations
  double scale_ = 1;                // measured / predicted times of several ranks
  TimeModel model_;                 // learns steps of one rank
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

}  // namespace crest
