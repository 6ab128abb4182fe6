#include "tune/level_mix.h"

#include <algorithm>
#include <limits>

#include "core/error.h"
#include "plan/memory_choices.h"
#include "plan/plan_report.h"
#include "plan/recipe_settings.h"
#include "plan/training_use.h"

namespace crest {

void LevelMix::add(size_t settings, int64_t batch, const std::string& level, int64_t bytes, double ms) {
  planned_[settings][batch][level] = {bytes, ms};
}

double LevelMix::fastest() const {
  double least = std::numeric_limits<double>::infinity();
  for (auto& [settings, batches] : planned_)
    for (auto& [batch, levels] : batches)
      for (auto& [level, cost] : levels) least = std::min(least, cost.ms);
  return least;
}

// A level too large for a smaller batch was not planned for this one. Its bytes continue the line
// of the last two batches, and its time stays.
LevelMix::Levels LevelMix::at(const std::map<int64_t, Levels>& batches, int64_t batch) {
  Levels all = batches.at(batch);
  std::map<std::string, std::vector<std::pair<int64_t, Cost>>> before;
  for (auto& [smaller, levels] : batches)
    if (smaller < batch)
      for (auto& [level, cost] : levels) before[level].emplace_back(smaller, cost);
  for (auto& [level, known] : before) {
    if (all.count(level) || known.size() < 2) continue;
    auto [b, last] = known.back();
    auto [a, earlier] = known[known.size() - 2];
    const double slope = double(last.bytes - earlier.bytes) / double(b - a);
    all[level] = {last.bytes + int64_t(slope * double(batch - b)), last.ms};
  }
  return all;
}

std::vector<LevelMix::Promise> LevelMix::promises(int64_t limit) const {
  std::vector<Promise> list;
  for (auto& [settings, batches] : planned_)
    for (auto& [batch, planned] : batches) {
      const Levels levels = at(batches, batch);
      const double none = std::numeric_limits<double>::infinity();
      double pure = none, mixed = none;
      for (auto& [level, fits] : levels) {
        if (fits.bytes > limit) continue;
        pure = std::min(pure, fits.ms);
        for (auto& [other, large] : levels) {
          if (large.bytes <= limit) continue;
          const double share = double(limit - fits.bytes) / double(large.bytes - fits.bytes);
          mixed = std::min(mixed, fits.ms + share * (large.ms - fits.ms));
        }
      }
      if (mixed < pure) list.push_back({settings, batch, mixed});
    }
  std::stable_sort(list.begin(), list.end(), [](auto& a, auto& b) { return a.ms < b.ms; });
  return list;
}

std::optional<TuneCombination> mixed(const TuneCombination& combination, const Device& device, int64_t limit,
                                     const StepTimer& timer) {
  Recipe recipe = combination.given;
  recipe.recompute = "budget=" + std::to_string(limit);
  try {
    recipe = recompute_within_budget(
        recipe, rank_device(recipe, device), [&](auto&, auto&) { return timer; }, {}, training_use);
  } catch (const Error& e) {
    if (e.code() != Exit::usage && e.code() != Exit::does_not_fit) throw;
    return std::nullopt;
  }
  TuneCombination c = with_change(combination, "recompute", recipe.recompute);
  for (auto& [name, value] : recipe.pass_settings) {
    auto before = combination.given.pass_settings.find(name);
    if (before == combination.given.pass_settings.end() || before->second != value) c = with_change(c, name, value);
  }
  return c;
}

}  // namespace crest
