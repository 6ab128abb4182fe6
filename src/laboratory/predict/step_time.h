// The time of a step from the device's calibration, or else from its data sheet.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "predict/floor_time.h"
#include "predict/planned_time.h"

namespace crest {

struct StepTime {
  std::optional<PlannedTime> time;  // if a calibration covers the step
  std::optional<FloorTime> floors;  // else, for a described device
  std::string why_not;              // why there is neither

  const PredictedStep* step() const {
    return time ? &*time : floors ? &*floors : static_cast<const PredictedStep*>(nullptr);
  }
};

// calibration: null if the device has none. sheet: the device's (sheet_of), null if unknown; a
// described device always has one. Several ranks need RankTimes::possible.
// Stages of a pipeline: see predict/pipeline_time.h.
StepTime step_time(const CompiledSession& session, const Calibration* calibration, const DataSheet* sheet,
                   const std::vector<const CompiledSession*>& compiled = {});
// To cut the recipe's layers into stages by time; none where step_time has no prediction.
std::optional<StageCosts> stage_costs(const Recipe& recipe, const Device& device, const Calibration* calibration,
                                      const DataSheet* sheet);

}  // namespace crest
