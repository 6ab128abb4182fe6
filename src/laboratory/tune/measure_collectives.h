// Measures collectives between processes of this host by crest comm, for a calibration.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "predict/collective_times.h"

namespace crest {

struct CollectivesToMeasure {
  std::vector<int> ranks;           // numbers of ranks, at least 2
  std::vector<std::string> dtypes;  // of sums, as in flags; gathers use the first
  std::vector<int64_t> sizes;       // bytes of the whole buffer, ascending; too large ones are left out
  double max_seconds = 1;           // per size
  std::vector<std::string> flags;   // passed on to crest comm: the device and its libraries
};

// Typical sizes of a step's collectives: up to 1 GB on GPUs, less on a CPU, where ranks copy.
std::vector<int64_t> collective_sizes(bool gpus);

// Starts processes and waits for them. say: progress. Throws the errors of crest comm.
std::vector<CollectiveTable> measure_collectives(const CollectivesToMeasure& what,
                                                 const std::function<void(const std::string&)>& say);

}  // namespace crest
