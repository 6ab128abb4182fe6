// The time of collectives between ranks of one host, for steps of several ranks: from measured
// sizes, or from the link of the GPU's data sheet.
#pragma once
#include <optional>
#include <string>

#include "device/data_sheet.h"
#include "plan/compile.h"
#include "predict/collective_times.h"
#include "predict/predicted_step.h"

namespace crest {

// Measured times are for one host.
inline constexpr int most_predicted_ranks = 8;

// Predicts the collectives of a session's step. Its processes run on one host, with a GPU each or
// on its CPU.
class RankTimes {
 public:
  // measured: from a calibration; sheet: of the GPU. Both may be null.
  RankTimes(const CompiledSession& session, const CollectiveTimes* measured, const DataSheet* sheet);
  // Whether a prediction is possible. Never with one rank.
  bool possible() const { return measured_ || sheet_; }
  // Milliseconds of all calls of a communicating row.
  double ms(const ProfileInstr& row) const;
  const CollectivesSource& source() const { return source_; }

 private:
  const CompiledSession& session_;
  const CollectiveTimes* measured_ = nullptr;  // null: use the sheet
  const DataSheet* sheet_ = nullptr;           // null, too: not possible
  CollectivesSource source_;
};

// The requirements of a prediction for several ranks, for errors.
std::string ranks_that_are_predicted();

}  // namespace crest
