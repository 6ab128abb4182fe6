// The predicted time of a planned step, for people and for programs.
#pragma once
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "plan/compile.h"
#include "predict/calibration.h"

namespace crest {

struct PlannedTime {
  StepPrediction step;
  Profile profile;                             // the rows of the session with their predicted times
  int64_t tokens = 0;                          // per step, or per forward pass
  double model_flops = 0, executed_flops = 0;  // the same
  std::string precision;
  double peak = 0;  // FLOP/s of a matmul in this precision, as the calibration measured it; 0: it did not

  double tokens_per_second() const { return 1e3 * double(tokens) / step.ms; }
  // Whether most of the time is in kernels that the calibration measured.
  bool known() const { return step.known >= 0.5; }
};

// Predicts a step of the session, or the forward pass that it has instead. Steps of several ranks
// are not predicted.
PlannedTime planned_time(const CompiledSession& session, const Calibration& calibration);
// The rows of a step of the session, without times.
Profile step_rows(const CompiledSession& session);

// A profile with predicted times, as crest profile --json prints one, for crest compare. Its noise
// floor is the half range of the prediction.
nlohmann::ordered_json profile_document(const PlannedTime& time, const CompiledSession& session,
                                        const Calibration& calibration);

// docs/contract.md, plan: `time`.
nlohmann::ordered_json to_json(const PlannedTime& time, const Calibration& calibration);
// A few lines. total: tokens of a whole training; 0: none given.
std::string text_of(const PlannedTime& time, const Calibration& calibration, double total = 0);

}  // namespace crest
