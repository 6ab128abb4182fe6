#include "predict/step_time.h"

#include <fmt/format.h>

#include "predict/rank_time.h"

namespace crest {

StepTime step_time(const CompiledSession& session, const Calibration* calibration, const DataSheet* sheet) {
  StepTime t;
  if (session.recipe.layout().size(Axis::pipeline) > 1) {
    t.why_not = "stages of a pipeline wait for each other; their bubble is predicted by FLOPs";
    return t;
  }
  const CollectiveTimes* measured = calibration ? &calibration->collectives : nullptr;
  if (session.recipe.all_ranks() > 1 && !RankTimes(session, measured, sheet).possible()) {
    t.why_not = "several ranks are predicted for " + ranks_that_are_predicted();
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

}  // namespace crest
