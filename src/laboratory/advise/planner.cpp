// Plans and predictions for the rules.
#include <fmt/format.h>

#include <algorithm>

#include "advise/advise.h"
#include "core/text.h"
#include "plan/plan_report.h"
#include "plan/recipe_settings.h"
#include "plan/search.h"
#include "plan/stage_plans.h"
#include "plan/step_flops.h"
#include "plan/training_use.h"
#include "predict/floor_time.h"
#include "predict/planned_time.h"

namespace crest {

namespace {

constexpr SessionUse step_use = {.train = true, .update = true};

// Some sizes of a model are not flags, so the key has the whole model.
std::string key_of(const Recipe& r) { return to_toml(r.model) + join(settings_of(r).flags(), " "); }

double tokens_of(const CompiledSession& s) { return double(s.recipe.tokens_per_step()); }

}  // namespace

Planner::Planned& Planner::planned(const Recipe& given) {
  std::string key = key_of(given);
  for (auto& known : planned_)
    if (known.key == key) return known;
  Recipe recipe = resolve(given, case_.device);
  auto step = std::make_unique<CompiledSession>(
      compile(recipe, rank_device(recipe, case_.device), session_programs(recipe, step_use), {.verify = false}));
  return planned_.emplace_back(Planned{std::move(key), std::move(step), nullptr});
}

const CompiledSession& Planner::whole(const Recipe& given) {
  Planned& p = planned(given);
  if (!p.whole) {
    p.whole = std::make_unique<CompiledSession>(*p.step);
    extend(*p.whole, session_programs(p.step->recipe, training_use), {.verify = false});
    *p.whole = largest_stage(std::move(*p.whole), {.verify = false});
  }
  return *p.whole;
}

const std::vector<StepProduct>& Planner::products() {
  if (!products_) products_ = products_of(session());
  return *products_;
}

int64_t Planner::largest_batch(const Recipe& given) {
  return crest::largest_batch(whole(given), training_use, case_.limit);
}

// None if no calibration covers the step.
std::optional<double> Planner::calibrated_ms(const CompiledSession& s) const {
  if (!case_.calibration || s.recipe.all_ranks() > 1) return std::nullopt;
  PlannedTime t = planned_time(s, *case_.calibration, case_.sheet);
  return t.known() ? std::optional(t.ms) : std::nullopt;
}

std::optional<double> Planner::tiled_ms_per_token(const Recipe& given) {
  if (!case_.sheet) return std::nullopt;
  const CompiledSession& s = session(given);
  return floor_time(s, *case_.sheet).tiled_ms / tokens_of(s);
}

std::optional<double> Planner::ms_per_token(const Recipe& given) {
  const CompiledSession& s = session(given);
  if (auto ms = calibrated_ms(s)) return *ms / tokens_of(s);
  return tiled_ms_per_token(given);
}

PredictedRatio Planner::ratio(const Recipe& without, const Recipe& with, GainNeeds needs) {
  if (needs == GainNeeds::measuring)
    return {{}, "", "it depends on kernels, not only on FLOPs and bytes; --measure measures it on the device"};
  const CompiledSession &a = session(without), &b = session(with);
  auto ratio = [&](double x, double y) { return y / tokens_of(b) / (x / tokens_of(a)); };
  if (needs != GainNeeds::tiles)
    if (auto x = calibrated_ms(a), y = calibrated_ms(b); x && y) return {ratio(*x, *y), "calibration", ""};
  if (case_.sheet) {
    FloorTime x = floor_time(a, *case_.sheet), y = floor_time(b, *case_.sheet);
    return {ratio(x.tiled_ms, y.tiled_ms), "floors", ""};
  }
  if (needs == GainNeeds::flops) return {ratio(executed_flops(a), executed_flops(b)), "flops", ""};
  return {{}, "", "no calibration of this device covers both steps; run crest calibrate"};
}

}  // namespace crest
