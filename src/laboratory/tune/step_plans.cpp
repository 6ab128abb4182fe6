#include "tune/step_plans.h"

#include <algorithm>

#include "core/text.h"
#include "plan/memory_choices.h"
#include "plan/plan_report.h"
#include "plan/recipe_settings.h"
#include "plan/stage_plans.h"
#include "plan/training_use.h"
#include "predict/defaults.h"

namespace crest {

namespace {

constexpr CompileOptions unverified = {.verify = false};
constexpr SessionUse step_use = {.train = true, .update = true};

// Settings without an effect on the update are left out.
std::string settings_of_update(Recipe r) {
  r.batch = 1, r.grad_accumulation = std::min<int64_t>(r.grad_accumulation, 2), r.recompute = "none";
  for (const char* name : {"attention", "loss-chunk"}) r.pass_settings.erase(name);
  return join(recipe_flags(r), " ");
}

bool has_stages(const Recipe& r) { return r.layout().size(Axis::pipeline) > 1; }

}  // namespace

CompiledSession StepPlans::step_of(const Recipe& resolved) {
  const Device device = rank_device(resolved, device_);
  const std::vector<ProgramSpec> programs = session_programs(resolved, step_use);
  if (has_stages(resolved)) return largest_stage(compile(resolved, device, programs, unverified), unverified);
  auto [known, is_new] = updates_.try_emplace(settings_of_update(resolved));
  if (is_new) known->second = compile(resolved, device, {{"update", ProgramKind::update}}, unverified);
  CompiledSession step = known->second;
  step.recipe = resolved;
  extend(step, programs, unverified);
  return step;
}

PlannedStep StepPlans::plan_resolved(const Recipe& resolved) {
  PlannedStep p;
  p.recipe = resolved, p.step = step_of(resolved), p.bytes = p.step.planned_bytes();
  // The step is a lower bound: if it is too large, no second plan is needed.
  const int64_t limit = limit_of_rank(resolved, device_, limit_);
  if (p.step.limited_bytes() > limit) return p;
  CompiledSession whole = p.step;
  extend(whole, session_programs(resolved, training_use), unverified);
  whole = largest_stage(std::move(whole), unverified);
  p.bytes = whole.planned_bytes(), p.fits = whole.limited_bytes() <= limit;
  return p;
}

PlannedStep StepPlans::plan(const Recipe& given) {
  if (has_stages(given))
    return plan_resolved(
        resolve(with_defaults(given, device_, limit_of_rank(given, device_, limit_), "", true), device_));
  const std::vector<Recipe> choices = memory_choices(given, device_);
  std::vector<PlannedStep> plans(choices.size());
  const int best = first_choice_that_fits(int(choices.size()), [&](int i) {
    plans[size_t(i)] = plan_resolved(resolve(choices[size_t(i)], device_));
    return plans[size_t(i)].fits;
  });
  return std::move(best < 0 ? plans.back() : plans[size_t(best)]);
}

}  // namespace crest
