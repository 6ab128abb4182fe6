#include "plan/recompute_budget.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "core/error.h"
#include "core/text.h"
#include "passes/offload.h"
#include "passes/recompute.h"
#include "plan/automatic.h"
#include "plan/memory_choices.h"
#include "plan/roofline_time.h"
#include "plan/stage_plans.h"
#include "plan/step_flops.h"
#include "plan/transfers.h"
#include "program/op.h"

namespace crest {

namespace {

constexpr size_t recompute_count = 5, away_index = recompute_count;
constexpr int most_plans = 80;
using Counts = std::array<int64_t, recompute_count + 1>;  // number of layers at each level, and away
using Plan = std::function<StepCost(const std::string&, int64_t)>;

class RecomputeSearch {
 public:
  RecomputeSearch(int64_t layers, int64_t budget, Plan plan, const std::string& away_level)
      : layers_(layers), budget_(budget), plan_(std::move(plan)), level_count_(recompute_count + !away_level.empty()) {
    if (!away_level.empty())
      away_level_ =
          size_t(std::find(recompute_levels.begin(), recompute_levels.end(), away_level) - recompute_levels.begin());
    for (size_t l = 0; l < recompute_count; ++l) {
      Counts all{};
      all[l] = layers_;
      uniform_[l] = planned(all);
    }
    if (level_count_ > recompute_count) plan_away();
    rank();
    bisect();
  }

  // The best so far; the smallest if none fits.
  RecomputeChoice choice() const {
    const Counts& best = best_ ? *best_ : *smallest_;
    return {value(best), best[away_index], known_.at(best), int(known_.size())};
  }
  // The best after moving one or two layers at a time.
  RecomputeChoice improved() {
    for (bool faster = true; faster;) faster = best_ && improve();
    return choice();
  }
  // Whether the fastest level fits for all layers, so that less memory would not help.
  bool is_free() const {
    return fits(*std::min_element(uniform_.begin(), uniform_.end(), [](auto& a, auto& b) { return a.ms < b.ms; }));
  }

 private:
  struct Mix {
    Counts counts;
    double ms, bytes;  // estimated
  };

  // Layers away come first, then heavier levels.
  std::string value(const Counts& counts) const {
    std::vector<std::string> by_layer(size_t(counts[away_index]), recompute_levels[away_level_]);
    for (size_t l = recompute_count; l-- > 0;) by_layer.insert(by_layer.end(), size_t(counts[l]), recompute_levels[l]);
    return recompute_value(by_layer);
  }

  bool fits(const StepCost& cost) const { return cost.bytes <= budget_; }

  const StepCost& planned(const Counts& counts) {
    auto [it, added] = known_.emplace(counts, StepCost());
    if (!added) return it->second;
    it->second = plan_(value(counts), counts[away_index]);
    const StepCost& cost = it->second;
    if (fits(cost) && (!best_ || cost.ms < known_.at(*best_).ms)) best_ = counts;
    if (!smallest_ || cost.bytes < known_.at(*smallest_).bytes) smallest_ = counts;
    return cost;
  }

  // What is added by layers away, from plans with some of them.
  struct Away {
    int64_t layers;
    double ms, bytes;
  };
  void plan_away() {
    away_ = {{0, 0, 0}};
    for (int64_t n : {layers_ / 4, layers_ / 2, layers_}) {
      if (n == away_.back().layers) continue;
      Counts counts{};
      counts[away_index] = n, counts[0] = layers_ - n;
      const StepCost& cost = planned(counts);
      const Mix stay = estimated_levels(counts);
      away_.push_back({n, cost.ms - stay.ms, double(cost.bytes) - stay.bytes});
    }
  }

  // As if layers away stayed.
  Mix estimated_levels(Counts counts) const {
    counts[away_level_] += std::exchange(counts[away_index], 0);
    return estimated(counts);
  }

  Mix estimated(const Counts& counts) const {
    if (const int64_t n = counts[away_index]; n > 0) {
      Mix mix = estimated_levels(counts);
      mix.counts = counts;
      size_t k = 1;
      while (away_[k].layers < n) ++k;
      const Away &low = away_[k - 1], &high = away_[k];
      const double share = double(n - low.layers) / double(high.layers - low.layers);
      mix.ms += low.ms + share * (high.ms - low.ms);
      mix.bytes += low.bytes + share * (high.bytes - low.bytes);
      return mix;
    }
    Mix mix{counts, 0, 0};
    for (size_t l = 0; l < recompute_count; ++l) {
      mix.ms += double(counts[l]) * uniform_[l].ms / double(layers_);
      mix.bytes += double(counts[l]) * double(uniform_[l].bytes) / double(layers_);
    }
    return mix;
  }

  // Sorts by time and drops candidates both slower and larger than another.
  void rank() {
    std::vector<Mix> all;
    for (size_t x = 0; x < level_count_; ++x)
      for (size_t y = x + 1; y < level_count_; ++y)
        for (size_t z = y + 1; z < level_count_; ++z)
          for (int64_t i = 0; i <= layers_; ++i)
            for (int64_t k = 0; k <= layers_ - i; ++k) {
              Counts counts{};
              counts[x] = i, counts[y] = k, counts[z] = layers_ - i - k;
              all.push_back(estimated(counts));
            }
    std::stable_sort(all.begin(), all.end(),
                     [](auto& a, auto& b) { return a.ms != b.ms ? a.ms < b.ms : a.bytes < b.bytes; });
    for (auto& mix : all)
      if (ranked_.empty() || mix.bytes < ranked_.back().bytes) ranked_.push_back(mix);
  }

  void bisect() {
    size_t low = 0, high = ranked_.size();  // candidates from `high` on fit
    while (low < high) {
      size_t middle = low + (high - low) / 2;
      if (fits(planned(ranked_[middle].counts)))
        high = middle;
      else
        low = middle + 1;
    }
  }

  // Plans candidates with one or two layers unlike the best, a faster estimate and a chance to fit.
  // Returns whether one was better.
  bool improve() {
    const Counts from = *best_;
    const StepCost at = known_.at(from);
    const Mix here = estimated(from);
    std::vector<Mix> near;
    for (auto& once : moves(from)) {
      near.push_back(estimated(once));
      for (auto& twice : moves(once)) near.push_back(estimated(twice));
    }
    std::erase_if(near, [&](auto& mix) {
      // An estimate may be off by a fraction of a layer.
      double slack = 0.01 * double(at.bytes);
      return known_.count(mix.counts) || mix.ms >= here.ms ||
             double(at.bytes) + mix.bytes - here.bytes > double(budget_) + slack;
    });
    std::stable_sort(near.begin(), near.end(), [](auto& a, auto& b) { return a.ms < b.ms; });
    for (auto& mix : near) {
      if (int(known_.size()) >= most_plans) return false;
      planned(mix.counts);
      if (*best_ != from) return true;
    }
    return false;
  }

  std::vector<Counts> moves(const Counts& from) const {
    std::vector<Counts> list;
    for (size_t x = 0; x < level_count_; ++x)
      for (size_t y = 0; y < level_count_; ++y) {
        if (x == y || from[x] == 0) continue;
        Counts to = from;
        --to[x], ++to[y];
        list.push_back(to);
      }
    return list;
  }

  const int64_t layers_, budget_;
  const Plan plan_;
  const size_t level_count_;
  size_t away_level_ = 0;  // repeated by layers away
  std::vector<Away> away_;
  std::array<StepCost, recompute_count> uniform_;
  std::vector<Mix> ranked_;
  std::map<Counts, StepCost> known_;
  std::optional<Counts> best_, smallest_;
};

}  // namespace

RecomputeChoice choose_recompute(int64_t layers, int64_t budget,
                                 const std::function<StepCost(const std::string& value, int64_t away)>& plan,
                                 const std::string& away_level) {
  return RecomputeSearch(layers, budget, plan, away_level).improved();
}

// Whether the search may put activations of layers into host memory.
static bool chooses_away(const Recipe& recipe) {
  auto it = recipe.pass_settings.find("offload");
  return it != recipe.pass_settings.end() &&
         offload_choice(it->second).activations == OffloadChoice::Activations::hidden;
}

// A recipe with one choice of the search.
static Recipe with_choice(Recipe r, const std::string& value, int64_t away) {
  r.recompute = value;
  if (!chooses_away(r)) return r;
  OffloadChoice offload = offload_choice(r.pass_settings.at("offload"));
  offload.activations = away > 0 ? OffloadChoice::Activations::layers : OffloadChoice::Activations::none;
  offload.layers = away;
  r.pass_settings["offload"] = offload_value(offload);
  return r;
}

// Seconds of a step that wait for activations from or to host memory.
static double exposed_activations(const CompiledSession& session,
                                  const std::function<double(const Program&, const Instr&)>& seconds, double link) {
  double sum = 0;
  for (const SegmentCall& call : training_step(session)) {
    const CompiledProgram& c = session.programs[size_t(call.segment)];
    if (c.host.bytes == 0) continue;
    sum += exposed_transfers(
        c, [&](size_t i) { return seconds(c.program, c.program.code[i]); }, link);
  }
  return sum;
}

StepTimer assumed_step_times(const CompiledSession&, const Device& device) {
  const AssumedRates rates = assumed_rates(device);
  auto seconds = [=](const Program& p, const Instr& i) {
    const Cost cost = i.op->cost(p, i);
    return std::max(cost.flops / rates.flops, cost.bytes() / (i.op->crosses_memories() ? rates.flops : rates.bytes));
  };
  const double link = roofline_of(device).host_link;
  return {
      .ms = [=](const CompiledSession& session,
                auto&) { return 1e3 * (sum_of_step(session, seconds) + exposed_activations(session, seconds, link)); },
      .source = "by FLOPs and bytes alone; crest calibrate adds times"};
}

// The stages of a pipeline for many values of --recompute. A stage is compiled once for each of its
// own values.
class StagesByRecompute {
 public:
  StagesByRecompute(const Device& device, const SessionUse& use) : device_(device), use_(use) {}

  StepCost cost(const Recipe& recipe, const StepTimer& timer) {
    if (known_.size() > most_sessions) known_.clear();
    int64_t bytes = 0;
    std::vector<const CompiledSession*> stages;
    for (int stage = 0; stage < recipe.layout().size(Axis::pipeline); ++stage) {
      const CompiledSession& s = session(recipe, stage);
      bytes = std::max(bytes, limited_bytes(s, stage));
      stages.push_back(&s);
    }
    CompiledSession first = *stages[0];
    first.recipe = recipe;
    return {timer.ms(first, stages), bytes};
  }

 private:
  const CompiledSession& session(const Recipe& recipe, int stage) {
    const CompileOptions quick = {.verify = false};
    auto [it, is_new] = known_.try_emplace(stage_work(recipe, stage));
    if (is_new && !first_) first_ = compile(recipe, device_, session_programs(recipe, use_), quick);
    if (is_new) {
      first_->recipe = recipe;
      it->second = for_stage(*first_, stage, quick);
    }
    return it->second;
  }

  static constexpr size_t most_sessions = 64;  // some MiB each
  const Device& device_;
  const SessionUse use_;
  std::optional<CompiledSession> first_;  // its schedule is that of all values
  std::map<std::vector<std::string>, CompiledSession> known_;
};

// The costs of a recipe's values of --recompute. Keeps references to device and timer.
static Plan costs_of(const Recipe& recipe, const Device& device, const StepTimer& timer, const SessionUse& use) {
  if (recipe.layout().size(Axis::pipeline) > 1) {
    auto stages = std::make_shared<StagesByRecompute>(device, use);
    return [=, &device, &timer](const std::string& value, int64_t) {
      Recipe r = recipe;
      r.recompute = value;
      return stages->cost(resolve(r, device), timer);
    };
  }
  auto step = [recipe, &device](const std::string& value, int64_t away, const SessionUse& planned) {
    const Recipe r = with_choice(recipe, value, away);
    return compile(r, device, session_programs(resolve(r, device), planned), {.verify = false});
  };
  // Validation and samples add the same bytes to every plan.
  const CompiledSession plain = step("none", 0, use);
  const int64_t others = plain.limited_bytes() - plain.transient_bytes;
  int64_t least = 0;
  for (auto& c : plain.programs)
    if (c.spec.kind != ProgramKind::train) least = std::max(least, c.memory.bytes);
  return [=, &timer, &device, host = plain.host_bytes](const std::string& value, int64_t away) {
    const CompiledSession session = step(value, away, {.train = true, .update = true});
    int64_t bytes = others + std::max(least, session.transient_bytes);
    if (device.kind == "cpu") bytes += session.host_bytes - host;
    return StepCost{timer.ms(session, {}), bytes};
  };
}

// Times a recipe and its variants from one source.
static StepTimer timer_for(Recipe recipe, const Device& device, const StepTimerOf& timer_of) {
  recipe.recompute = "none";
  const SessionUse use = {.train = true, .update = true};
  const CompiledSession plain =
      compile(recipe, device, session_programs(resolve(recipe, device), use), {.verify = false});
  return (timer_of ? timer_of : assumed_step_times)(plain, device);
}

Recipe recompute_within_budget(Recipe recipe, const Device& device, const StepTimerOf& timer_of,
                               const std::function<void(const std::string&)>& note, const SessionUse& use) {
  const std::string given = recipe.recompute;
  std::string_view size = recompute_budget(given);
  if (size.empty()) return recipe;
  const int64_t budget = parse_bytes(size, "--recompute");
  // Memory saved elsewhere allows less recompute.
  const std::vector<Recipe> variants = memory_choices(recipe, device);
  const StepTimer timer = timer_for(variants[0], device, timer_of);
  RecomputeChoice choice;
  std::optional<RecomputeSearch> search;  // of the best variant
  for (const Recipe& variant : variants) {
    RecomputeSearch next(variant.model.layers, budget, costs_of(variant, device, timer, use),
                         chooses_away(variant) ? auto_recompute(variant.fusion) : "");
    const RecomputeChoice own = next.choice();
    const bool fits = own.cost.bytes <= budget, fitted = choice.cost.bytes <= budget;
    const bool better = fits && fitted ? own.cost.ms < choice.cost.ms : own.cost.bytes < choice.cost.bytes;
    const bool is_free = next.is_free();
    if (!search || better) choice = own, recipe = variant, search.emplace(std::move(next));
    if (is_free) break;
  }
  choice = search->improved();
  std::string text = choice.value;
  if (chooses_away(recipe))
    text += ", offload " + with_choice(recipe, choice.value, choice.away).pass_settings["offload"];
  for (const char* name : {"fp8-weights", "loss-chunk"}) {
    const std::string chosen = pass_setting_of(recipe, name);
    if (!chosen.empty() && pass_setting_of(variants.front(), name) != pass_setting_of(variants.back(), name))
      text += fmt::format(", {} {}", name, chosen);
  }
  if (choice.cost.bytes > budget)
    throw Error(Exit::does_not_fit,
                fmt::format("no recompute fits {}; the closest needs {} (--recompute {})", format_bytes(double(budget)),
                            format_bytes(double(choice.cost.bytes)), text),
                "--recompute " + printable(given), "Use a larger budget, or a smaller --batch.");
  if (note)
    note(fmt::format(
        "recompute {}: {}, {} planned{} ({})", printable(given), text, format_bytes(double(choice.cost.bytes)),
        timer.absolute ? fmt::format(", {} a step", format_duration(choice.cost.ms / 1e3)) : "", timer.source));
  return with_choice(recipe, choice.value, choice.away);
}

}  // namespace crest
