// Measures collectives between processes of this host for a calibration, by crest comm.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "predict/collective_times.h"

namespace crest {

struct CollectivesToMeasure {
  std::vector<int> ranks;           // numbers of them, at least 2
  std::vector<std::string> dtypes;  // of sums, as in flags; shares are gathered in the first
  std::vector<int64_t> sizes;       // bytes of the whole buffer, ascending; those that do not fit are left out
  double max_seconds = 1;           // a size
  std::vector<std::string> flags;   // that crest comm gets, too: the device and its libraries
};

// Sizes that a step's collectives have: on GPUs up to 1 GB, on a CPU, where a rank copies, less.
std::vector<int64_t> collective_sizes(bool gpus);

// Starts processes and waits for them. say: progress. Throws the errors of crest comm.
std::vector<CollectiveTable> measure_collectives(const CollectivesToMeasure& what,
                                                 const std::function<void(const std::string&)>& say);

}  // namespace crest
