// The predicted time of a planned step, as text and as JSON.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "device/data_sheet.h"
#include "plan/compile.h"
#include "predict/calibration.h"
#include "predict/predicted_step.h"

namespace crest {

// From a calibration, with its measured peak.
struct PlannedTime : PredictedStep {
  double measured_share = 0;  // share of the time in kernels that the calibration measured

  // Whether the calibration measured most of the kernels, by time.
  bool known() const { return measured_share >= 0.5; }
};

// Predicts a step of the session, or its forward pass if it has no step. Collectives of several
// ranks are as in RankTimes. If it cannot predict them, the step is predicted as one rank's.
PlannedTime planned_time(const CompiledSession& session, const Calibration& calibration,
                         const DataSheet* sheet = nullptr);

// A profile with predicted times for crest compare, in the format of crest profile --json. Its
// noise floor is half the range of the prediction.
nlohmann::ordered_json profile_document(const PlannedTime& time, const CompiledSession& session,
                                        const Calibration& calibration);

// docs/reference/contract.md, plan: `time`.
nlohmann::ordered_json to_json(const PlannedTime& time, const Calibration& calibration);
// A few lines. total: tokens of a whole training; 0: not given.
std::string text_of(const PlannedTime& time, const Calibration& calibration, double total = 0);

}  // namespace crest
