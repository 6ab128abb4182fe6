// Times of collectives between ranks of one host by size, as measured by crest comm: a part of a
// calibration.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "comm/collective.h"

namespace crest {

// One collective on one number of ranks.
struct CollectiveTable {
  Collective collective = Collective::all_reduce;
  int ranks = 2;
  std::string dtype = "fp32";                // as in flags
  std::string library, date, crest_version;  // "nccl 2.28.9"; UTC
  std::vector<TransferPoint> points;         // bytes of the whole buffer and seconds, ascending; at least two

  // Interpolated between two measured sizes. Beyond the largest, the slope of the last two sizes
  // continues. Below the smallest, the time stays the same.
  double seconds(double bytes) const;
};

class CollectiveTimes {
 public:
  // Replaces a table of the same collective, ranks and dtype.
  void add(CollectiveTable table);
  const std::vector<CollectiveTable>& tables() const { return tables_; }
  // Whether all collectives of a step were measured for this number of ranks; nearby: or for
  // another.
  bool covers(int ranks, bool nearby) const;
  // The table for this number of ranks, else the nearest (the larger of two), and for this dtype,
  // else another. Null: the collective was not measured.
  const CollectiveTable* find(Collective collective, int ranks, const std::string& dtype) const;

  nlohmann::ordered_json to_json() const;
  // Throws with `where` and the problem.
  static CollectiveTimes from_json(const nlohmann::ordered_json& json, const std::string& where);

 private:
  std::vector<CollectiveTable> tables_;
};

// The collectives needed to predict a training step, and all those with a table: send-receive is
// for transfers between pipeline stages and pieces of rows. Without its table they take the time of
// an all-gather. No step has an all-to-all.
extern const std::vector<Collective> step_collectives, table_collectives;

}  // namespace crest
