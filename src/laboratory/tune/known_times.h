// Predicts the steps of a search that this process does not measure itself: those of several ranks,
// and those on a device that is not here.
#pragma once
#include <functional>
#include <optional>
#include <string>

#include "tune/process_runs.h"
#include "tune/tune.h"

namespace crest {

class KnownTimes {
 public:
  // calibration: null where the device has none.
  KnownTimes(const TuneOptions& options, const Device& device, const Calibration* calibration)
      : o_(options), device_(device), calibration_(calibration ? *calibration : Calibration()) {}

  // Measures what a prediction of several ranks needs and nothing tells: collectives of `ranks`
  // of them, and a step of one rank like this one (resolved). say: progress.
  void complete(const Recipe& recipe, int ranks, const ProcessRuns& runs,
                const std::function<void(const std::string&)>& say);
  // None: complete() comes first, or it cannot be predicted, and why_not() says why.
  std::optional<StepPrediction> predict(const CompiledSession& session) const;
  std::string why_not(const CompiledSession& session) const;
  // What crest plan says of the time.
  std::string text(const CompiledSession& session) const;

 private:
  const DataSheet* sheet() const { return o_.sheet ? &*o_.sheet : nullptr; }

  const TuneOptions& o_;
  const Device& device_;
  Calibration calibration_;
  bool complete_ = false;
};

}  // namespace crest
