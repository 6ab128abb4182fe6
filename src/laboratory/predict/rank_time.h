// The time of collectives between ranks, for steps of several ranks: from measured sizes, or from
// the links of the GPU's data sheet.
#pragma once
#include <map>
#include <optional>
#include <string>

#include "device/data_sheet.h"
#include "plan/compile.h"
#include "predict/collective_times.h"
#include "predict/network_time.h"
#include "predict/predicted_step.h"

namespace crest {

// Measured times are for one host.
inline constexpr int most_measured_ranks = 8;
inline constexpr int most_predicted_ranks = 16384;

// Predicts the collectives of a session's step. Its processes have a GPU each, on nodes of
// DataSheet::node_gpus, or run on the CPU of one host.
class RankTimes {
 public:
  // measured: from a calibration; sheet: of the GPU. Both may be null.
  RankTimes(const CompiledSession& session, const CollectiveTimes* measured, const DataSheet* sheet);
  // Whether a prediction is possible. Never with one rank.
  bool possible() const { return measured_ || sheet_; }
  // Milliseconds of all calls of a communicating row.
  double ms(const ProfileInstr& row) const;
  // Sets the row's time and counts it and its bytes as the step's.
  void add(PredictedStep& step, ProfileInstr& row) const;
  // Milliseconds of one call between ranks of a node. sent: bytes of a rank, as in a ring.
  double in_node_ms(Collective collective, double sent, int ranks, const std::string& dtype) const;
  const CollectivesSource& source() const { return source_; }

 private:
  // Milliseconds more than between `measured` ranks for a rank's own part, without a link; negative
  // for more ranks, 0 if the rate of their memory is unknown.
  double own_part_ms(Collective collective, double sent, int ranks, int measured) const;
  // Milliseconds of one call by copy engines between ranks of a node.
  double copied_ms(Collective collective, double sent, int ranks, int barriers) const;
  const GroupSpan& span(Axes axes) const;

  const CompiledSession& session_;
  const CollectiveTimes* measured_ = nullptr;  // null: use the sheet
  const DataSheet* sheet_ = nullptr;           // null, too: not possible
  double network_ = 0;                         // bytes/s of a GPU between nodes, in one direction
  double link_ = 0;                            // the same between GPUs of a node; 0: unknown
  double memory_ = 0;                          // bytes/s of a GPU's memory; 0: unknown
  CollectivesSource source_;
  mutable std::map<Axes, GroupSpan> spans_;
};

// Why RankTimes is not possible, for errors.
std::string why_ranks_are_not_predicted(const CompiledSession& session, const DataSheet* sheet);

}  // namespace crest
