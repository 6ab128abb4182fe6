#include "tune/known_times.h"

#include "predict/pipeline_time.h"
#include "predict/step_time.h"
#include "tune/calibrate.h"
#include "tune/measure_collectives.h"

namespace crest {

namespace {

constexpr double quick_seconds = 0.1;  // per size, for collectives missing in the calibration

}  // namespace

void KnownTimes::complete(const Recipe& recipe, int ranks, const ProcessRuns& runs,
                          const std::function<void(const std::string&)>& say) {
  const bool gpus = device_.kind == "cuda";
  const bool linked = gpus && sheet() && sheet()->link_bandwidth > 0;
  if (ranks > 1 && !linked && !calibration_.collectives.covers(ranks, gpus))
    for (auto& table : measure_collectives({.ranks = {ranks},
                       .dtypes = {"fp32"},
                       .sizes = collective_sizes(gpus),
                       .max_seconds = quick_seconds,
                       .flags = o_.process_flags},
                                           say))
      calibration_.collectives.add(table);
  Recipe one = one_rank_of(recipe);
  CompiledSession session = compile_phase(one, device_, BenchPhase::step, {.verify = false});
  if (!step_time(session, &calibration_, sheet()).time) {
    say("profiling a step of one rank ...");
    int threads = gpus ? 0 : device_.threads;
    calibration_.sources.push_back(source_here(device_));
    one.pass_settings["gradient-overlap"] = "off";  // kernels are timed alone
    calibration_.add(runs.profile(one, o_.max_seconds, threads));
    Recipe small = one;
    small.batch = small.grad_accumulation = 1;
    if (one.batch * one.grad_accumulation > 1) calibration_.add(runs.profile(small, o_.max_seconds, threads));
  }
  complete_ = true;
}

std::optional<StepPrediction> KnownTimes::predict(const CompiledSession& session) const {
  auto of = [](const PredictedStep& s) { return StepPrediction{s.ms, s.low_ms, s.high_ms, 1, {}}; };
  auto planned = [&](const CompiledSession& s) {
    StepTime t;
    t.time = planned_time(s, calibration_, sheet());
    return t;
  };
  if (complete_) return of(*pipeline_step_time(session, planned).step());
  StepTime time = step_time(session, &calibration_, sheet());
  return time.step() ? std::optional(of(*time.step())) : std::nullopt;
}

std::string KnownTimes::why_not(const CompiledSession& session) const {
  return step_time(session, &calibration_, sheet()).why_not;
}

std::string KnownTimes::text(const CompiledSession& session) const {
  StepTime time = step_time(session, &calibration_, sheet());
  return time.time ? text_of(*time.time, calibration_) : time.floors ? text_of(*time.floors) : std::string();
}

}  // namespace crest
