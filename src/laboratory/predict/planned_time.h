// The predicted time of a planned step, for people and for programs.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "device/data_sheet.h"
#include "plan/compile.h"
#include "predict/calibration.h"
#include "predict/predicted_step.h"

namespace crest {

// By a calibration, which has measured the peak.
struct PlannedTime : PredictedStep {
  double measured_share = 0;  // of the time, in kernels that the calibration measured

  // Whether most of the time is in kernels that the calibration measured.
  bool known() const { return measured_share >= 0.5; }
};

// Predicts a step of the session, or the forward pass that it has instead. Of several ranks
// with their collectives as RankTimes predicts them; where it does not, as one rank.
PlannedTime planned_time(const CompiledSession& session, const Calibration& calibration,
                         const DataSheet* sheet = nullptr);

// A profile with predicted times, as crest profile --json prints one, for crest compare. Its noise
// floor is the half range of the prediction.
nlohmann::ordered_json profile_document(const PlannedTime& time, const CompiledSession& session,
                                        const Calibration& calibration);

// docs/reference/contract.md, plan: `time`.
nlohmann::ordered_json to_json(const PlannedTime& time, const Calibration& calibration);
// A few lines. total: tokens of a whole training; 0: none given.
std::string text_of(const PlannedTime& time, const Calibration& calibration, double total = 0);

}  // namespace crest
