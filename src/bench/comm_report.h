// What crest comm prints: rows, fits and verdicts, as text and JSON (docs/contract.md).
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/comm_options.h"
#include "measure/collectives.h"

namespace crest {

// All sizes of one collective with one number of ranks.
struct CommGroup {
  Collective collective = Collective::all_reduce;
  std::string backend;
  int ranks = 1;
  DType dtype = DType::f32;
  double process_seconds = 0;     // start of the process until all ranks had found each other, the slowest rank
  double connect_seconds = 0;     // of this number of ranks, until the first barrier was over
  double first_call_seconds = 0;  // of the smallest size; connections and buffers are made in it
  double latency_seconds = 0;     // median of one element a rank
  std::vector<CollectiveTime> times;
  double link_measured = 0, link_expected = 0;  // bytes per second; expected: given, or of the data sheet; 0: none
  std::string link_source;                      // of the expected rate
  double other_load = 0;  // CPUs of this host that processes besides the ranks kept busy; negative: not known

  double bus_bandwidth(const CollectiveTime& t) const {
    return t.algorithm_bandwidth() * bus_factor(collective, ranks);
  }
  TransferFit fit() const;
};

struct CommVerdict {
  std::string verdict;  // reaches, below, far_below, cannot_tell
  double share = 0;     // of the link's rate
  std::string sentence;
};
CommVerdict judge(const CommGroup& group);

nlohmann::ordered_json rows_to_json(const CommGroup& group);
nlohmann::ordered_json to_json(const CommGroup& group);  // without rows
// Table and sentences.
std::string group_text(const CommGroup& group, bool color);

}  // namespace crest
