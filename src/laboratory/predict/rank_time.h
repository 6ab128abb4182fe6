// The time of collectives between ranks of one host, for steps of several ranks: by sizes that were
// measured there, or else by the link of the GPU's data sheet.
#pragma once
#include <optional>
#include <string>

#include "device/data_sheet.h"
#include "plan/compile.h"
#include "predict/collective_times.h"
#include "predict/predicted_step.h"

namespace crest {

// One host: what the measured curves are of.
inline constexpr int most_predicted_ranks = 8;

// Predicts the collectives of one session's step: of processes of one host, with a GPU each or on
// its CPU.
class RankTimes {
 public:
  // measured: of a calibration; sheet: of the GPU. Both may be null.
  RankTimes(const CompiledSession& session, const CollectiveTimes* measured, const DataSheet* sheet);
  // Whether they can be predicted. Not for one rank.
  bool possible() const { return measured_ || sheet_; }
  // Milliseconds of all calls of a row that communicates.
  double ms(const ProfileInstr& row) const;
  const CollectivesSource& source() const { return source_; }

 private:
  const CompiledSession& session_;
  const CollectiveTimes* measured_ = nullptr;  // null: by the sheet
  const DataSheet* sheet_ = nullptr;           // null, too: not possible
  CollectivesSource source_;
};

// What must be there for a prediction of several ranks, for errors.
std::string ranks_that_are_predicted();

}  // namespace crest
