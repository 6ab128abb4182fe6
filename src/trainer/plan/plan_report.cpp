#include "plan/plan_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "backend/device_json.h"
#include "core/int8.h"
#include "core/timer.h"
#include "model/parameters.h"
#include "plan/plan_json.h"
#include "plan/recipe_settings.h"
#include "plan/search.h"
#include "plan/stage_plans.h"
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

// Every stage needs its memory. Plans the largest stage and returns those with different work.
static std::vector<CompiledSession> add_stages(PlanReport& r, const CompileOptions& quick) {
  const int ranks = r.session.recipe.layout().size(Axis::pipeline);
  if (ranks == 1 || r.session.schedule.calls.empty()) return {};
  const Recipe recipe = r.session.recipe;
  const std::vector<int64_t> layers = stage_layers(recipe);
  std::vector<CompiledSession> distinct = distinct_stages(r.session, quick);
  std::map<std::vector<std::string>, const CompiledSession*> by_work;
  for (const CompiledSession& stage : distinct) {
    by_work[stage_work(recipe, stage.stage)] = &stage;
    if (stage.limited_bytes() > r.session.limited_bytes()) r.session = stage;
  }
  for (int s = 0; s < ranks; ++s) {
    const CompiledSession& stage = *by_work.at(stage_work(recipe, s));
    StagePlan& plan = r.stages.emplace_back();
    plan.planned_bytes = planned_bytes(stage, s), plan.executed_flops = executed_flops(stage);
    plan.fits = limited_bytes(stage, s) <= r.rank_limit;
    for (size_t at = size_t(s); at < layers.size(); at += size_t(ranks))
      plan.layers += fmt::format("{}{}", plan.layers.empty() ? "" : "+", layers[at]);
    for (int slots : stage.schedule.slots[size_t(s)]) plan.micro_steps += slots;
  }
  PartTimes times = times_by_flops(recipe);
  times.transfer = 0;
  r.bubble = bubble_of(pipeline_of(recipe), times);
  if (!r.fits()) r.cut_that_fits = stages_that_fit(r.session, r.rank_limit);
  return distinct;
}

// With larger batches, another stage may need the most memory.
static int64_t batch_for_all(const PlanReport& r, const std::vector<CompiledSession>& stages, const SessionUse& use) {
  int64_t batch = largest_batch(r.session, use, r.rank_limit);
  for (const CompiledSession& stage : stages) {
    if (batch == 0 || stage.stage == r.session.stage) continue;
    Recipe tried = stage.recipe;
    tried.batch = batch;
    const CompileOptions quick = {.verify = false, .stage = stage.stage};
    if (compile(tried, stage.device, session_programs(tried, use), quick).limited_bytes() > r.rank_limit)
      batch = std::min(batch, largest_batch(stage, use, r.rank_limit));
  }
  return batch;
}

PlanReport plan_report(const Recipe& recipe, const Device& device, const SessionUse& use, int64_t limit) {
  PlanReport r;
  r.limit = limit, r.rank_limit = limit_of_rank(recipe, device, limit);
  r.ranks = recipe.all_ranks();
  CompileOptions quick;
  quick.verify = false;  // tests verify every pass; planning should be fast
  r.session = compile(recipe, rank_device(recipe, device), session_programs(recipe, use), quick);
  const std::vector<CompiledSession> stages = add_stages(r, quick);
  r.executed_flops = executed_flops(r.session) * double(r.ranks);
  if (!r.stages.empty()) {
    double all = 0;
    for (const StagePlan& stage : r.stages) all += stage.executed_flops;
    r.executed_flops = all * double(r.ranks) / double(r.stages.size());
  }
  Timer timer;
  if (!r.decodes()) r.batch_that_fits = batch_for_all(r, stages, use);
  r.search_seconds = timer.seconds();
  return r;
}

AdapterPlan adapter_plan(const CompiledSession& s) {
  AdapterPlan plan;
  const Program& p = s.programs[0].program;
  if (s.recipe.model.lora.rank == 0) return plan;
  for (const Param& q : p.params) {
    int64_t bytes = p.at(q.value).bytes();
    if (const ValueId scale = p.find(q.name + int8_scale); scale != no_value) bytes += p.at(scale).bytes();
    (q.frozen ? plan.frozen_bytes : plan.adapter_bytes) += bytes;
    (q.frozen ? plan.frozen : plan.trained) += q.shape.numel();
  }
  return plan;
}

static Json pipeline_to_json(const PlanReport& r) {
  Json stages = Json::array();
  for (const StagePlan& s : r.stages)
    stages.push_back(
        {{"layers", s.layers}, {"planned_bytes", s.planned_bytes}, {"micro_steps", s.micro_steps}, {"fits", s.fits}});
  const Bubble& b = r.bubble;
  return {{"stage", r.session.stage},
          {"stages", stages},
          {"stages_that_fit", r.cut_that_fits.empty() ? Json() : Json(r.cut_that_fits)},
          {"bubble",
           {{"fraction", b.fraction()},
            {"warm_up", b.warm_up / b.ideal},
            {"drain", b.drain / b.ideal},
            {"imbalance", b.imbalance / b.ideal}}}};
}

Json to_json(const PlanReport& r, int blocks) {
  const CompiledSession& s = r.session;
  Json json = {{"model", model_to_json(r.model())},
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
  if (const AdapterPlan a = adapter_plan(s); a.trained)
    json["adapters"] = {
        {"rank", r.model().lora.rank}, {"targets", r.model().lora.targets}, {"trained", a.trained},
        {"frozen", a.frozen},          {"adapter_bytes", a.adapter_bytes},  {"frozen_bytes", a.frozen_bytes}};
  if (!r.stages.empty()) json["pipeline"] = pipeline_to_json(r);
  return json;
}

}  // namespace crest
