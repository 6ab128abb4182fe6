// Predicts steps without measuring them here: steps of several ranks, and steps on a described
// device.
#pragma once
#include <functional>
#include <optional>
#include <string>

#include "tune/process_runs.h"
#include "tune/tune.h"

namespace crest {

class KnownTimes {
 public:
  // calibration: null if the device has none.
  KnownTimes(const TuneOptions& options, const Device& device, const Calibration* calibration)
      : o_(options), device_(device), calibration_(calibration ? *calibration : Calibration()) {}

  // Measures missing data for predicting several ranks: collectives of `ranks` ranks, and a
  // one-rank step like this one (resolved). say: progress.
  void complete(const Recipe& recipe, int ranks, const ProcessRuns& runs,
                const std::function<void(const std::string&)>& say);
  // None before complete(), or if a prediction is impossible (why_not() has the reason).
  std::optional<StepPrediction> predict(const CompiledSession& session) const;
  std::string why_not(const CompiledSession& session) const;
  // The time text of crest plan.
  std::string text(const CompiledSession& session) const;

 private:
  const DataSheet* sheet() const { return o_.sheet ? &*o_.sheet : nullptr; }

  const TuneOptions& o_;
  const Device& device_;
  Calibration calibration_;
  bool complete_ = false;
};

}  // namespace crest
