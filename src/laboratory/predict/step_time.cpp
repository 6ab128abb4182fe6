#include "predict/step_time.h"

#include <fmt/format.h>

#include "predict/pipeline_time.h"
#include "predict/rank_time.h"

namespace crest {

static StepTime time_of_rank(const CompiledSession& session, const Calibration* calibration, const DataSheet* sheet) {
  StepTime t;
  const CollectiveTimes* measured = calibration ? &calibration->collectives : nullptr;
  if (session.recipe.all_ranks() > 1 && !RankTimes(session, measured, sheet).possible()) {
    t.why_not = why_ranks_are_not_predicted(session, sheet);
    return t;
  }
  t.why_not = "crest calibrate measures this device once";
  if (calibration && calibration->times.steps()) {
    t.time = planned_time(session, *calibration, sheet);
    if (!t.time->known()) {
      t.why_not = fmt::format("the calibration covers only {:.0f}% of its time; run crest calibrate --precision {}",
                              100 * t.time->measured_share, session.recipe.precision);
      t.time.reset();
    }
  }
  if (session.device.described && sheet && !t.time) t.floors = floor_time(session, *sheet, measured);
  return t;
}

StepTime step_time(const CompiledSession& session, const Calibration* calibration, const DataSheet* sheet,
                   const std::vector<const CompiledSession*>& compiled) {
  auto of_rank = [&](const CompiledSession& s) { return time_of_rank(s, calibration, sheet); };
  return pipeline_step_time(session, of_rank, compiled);
}

std::optional<StageCosts> stage_costs(const Recipe& recipe, const Device& device, const Calibration* calibration,
                                      const DataSheet* sheet) {
  return predicted_stage_costs(recipe, device,
                               [&](const CompiledSession& s) { return time_of_rank(s, calibration, sheet); });
}

}  // namespace crest
