// Times of collectives between ranks of one host by size, as crest comm measures them: a part of a
// calibration.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "comm/collective.h"

namespace crest {

// One collective between one number of ranks.
struct CollectiveTable {
  Collective collective = Collective::all_reduce;
  int ranks = 2;
  std::string dtype = "fp32";                // as in flags
  std::string library, date, crest_version;  // "nccl 2.28.9"; UTC
  std::vector<TransferPoint> points;         // bytes of the whole buffer and seconds, ascending; at least two

  // On the line between two measured sizes. Beyond the largest, bytes take what they took between
  // the last two sizes; below the smallest, nothing is saved.
  double seconds(double bytes) const;
};

class CollectiveTimes {
 public:
  // In place of a table of the same collective, ranks and dtype.
  void add(CollectiveTable table);
  const std::vector<CollectiveTable>& tables() const { return tables_; }
  // Whether the collectives of a step of that number of ranks were measured; nearby: or of another.
  bool covers(int ranks, bool nearby) const;
  // Of this number of ranks, or else of the nearest (the larger of two); of this dtype, or else of
  // another. Null: the collective was not measured.
  const CollectiveTable* find(Collective collective, int ranks, const std::string& dtype) const;

  nlohmann::ordered_json to_json() const;
  // Throws with `where` and what is wrong.
  static CollectiveTimes from_json(const nlohmann::ordered_json& json, const std::string& where);

 private:
  std::vector<CollectiveTable> tables_;
};

// Those that steps consist of.
extern const std::vector<Collective> step_collectives;

}  // namespace crest
