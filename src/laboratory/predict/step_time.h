// The time of a step by what is known of the device: a calibration, or else its data sheet.
#pragma once
#include <optional>
#include <string>

#include "predict/floor_time.h"
#include "predict/planned_time.h"

namespace crest {

struct StepTime {
  std::optional<PlannedTime> time;  // where a calibration covers the step
  std::optional<FloorTime> floors;  // else, of a device that is not here
  std::string why_not;              // neither

  const PredictedStep* step() const {
    return time ? &*time : floors ? &*floors : static_cast<const PredictedStep*>(nullptr);
  }
};

// calibration: null where the device has none. sheet: of the device (sheet_of), null where it is
// unknown; of a described one it is known. Steps of several ranks only where RankTimes is possible.
StepTime step_time(const CompiledSession& session, const Calibration* calibration, const DataSheet* sheet);

}  // namespace crest
