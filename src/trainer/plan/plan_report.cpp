#include "plan/plan_report.h"

#include <nlohmann/json.hpp>

#include "backend/device_json.h"
#include "core/timer.h"
#include "model/parameters.h"
#include "plan/plan_json.h"
#include "plan/recipe_settings.h"
#include "plan/search.h"
#include "plan/step_flops.h"

namespace crest {

std::string PlanReport::flops_convention() const { return palm_convention(session.recipe, forward_only()); }

using Json = nlohmann::ordered_json;

int64_t limit_of_rank(const Recipe& recipe, const Device& device, int64_t limit) {
  return limit / (device.kind == "cuda" ? recipe.data_parallel : recipe.all_ranks());
}

Device rank_device(const Recipe& recipe, Device device) {
  device.threads = std::max(1, device.threads / recipe.ranks);
  return device;
}

PlanReport plan_report(const Recipe& recipe, const Device& device, const SessionUse& use, int64_t limit) {
  PlanReport r;
  r.limit = limit, r.rank_limit = limit_of_rank(recipe, device, limit);
  r.ranks = recipe.all_ranks();
  CompileOptions quick;
  quick.verify = false;  // tests verify every pass; here planning should be fast
  r.session = compile(recipe, rank_device(recipe, device), session_programs(recipe, use), quick);
  r.executed_flops = executed_flops(r.session) * double(r.ranks);
  Timer timer;
  if (!r.decodes()) r.batch_that_fits = largest_batch(r.session, use, r.rank_limit);
  r.search_seconds = timer.seconds();
  return r;
}

Json to_json(const PlanReport& r, int blocks) {
  const CompiledSession& s = r.session;
  return {{"model", model_to_json(r.model())},
          {"recipe", recipe_to_json(s.recipe)},
          {"device", device_to_json(s.device)},
          {"parameters",
           {{"total", parameter_count(r.model())},
            {"matmul", matmul_parameter_count(r.model())},
            {"embeddings", embedding_parameter_count(r.model())}}},
          {"tokens_per_step", r.tokens()},
          {"flops",
           {{"model_per_step", r.model_flops()},
            {"executed_per_step", r.executed_flops},
            {"flops_convention", r.flops_convention()}}},
          {"memory", memory_to_json(s, blocks)},
          {"fit",
           {{"memory_bytes", r.limit},
            {"fits", r.fits()},
            {"largest_batch", r.batch_that_fits ? Json(*r.batch_that_fits) : Json()}}},
          {"programs", programs_to_json(s)},
          {"seconds", s.compile_seconds + r.search_seconds}};
}

}  // namespace crest
