// The output of crest comm: rows, fits and verdicts, as text and JSON (docs/reference/contract.md).
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/comm_options.h"
#include "measure/collectives.h"

namespace crest {

// All sizes of one collective on one number of ranks.
struct CommGroup {
  Collective collective = Collective::all_reduce;
  std::string backend;
  int ranks = 1;
  DType dtype = DType::f32;
  double process_seconds = 0;     // from process start until all ranks found each other; slowest rank
  double connect_seconds = 0;     // for this number of ranks, until the end of the first barrier
  double first_call_seconds = 0;  // smallest size; includes setting up connections and buffers
  double latency_seconds = 0;     // median for one element per rank
  std::vector<CollectiveTime> times;
  double link_measured = 0, link_expected = 0;  // bytes per second; expected: given, or from the data sheet; 0: none
  std::string link_source;                      // source of the expected rate
  double other_load = 0;                        // CPUs of this host in use by other processes; negative: unknown

  double bus_bandwidth(const CollectiveTime& t) const {
    return t.algorithm_bandwidth() * bus_factor(collective, ranks);
  }
  TransferFit fit() const;
};

struct CommVerdict {
  std::string verdict;  // reaches, below, far_below, cannot_tell
  double share = 0;     // share of the link rate
  std::string sentence;
};
CommVerdict judge(const CommGroup& group);

nlohmann::ordered_json rows_to_json(const CommGroup& group);
nlohmann::ordered_json to_json(const CommGroup& group);  // without rows
// The table and sentences.
std::string group_text(const CommGroup& group, bool color);

}  // namespace crest
