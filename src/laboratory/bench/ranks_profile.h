// Times of each process in a profiled step. Processes exchange when they entered and left each
// collective.
#pragma once
#include <vector>

#include "bench/phase_runner.h"
#include "comm/comm.h"

namespace crest {

// All ranks call it with equally many runs. rows: instructions and calls of the step, without
// times. plain: seconds of untraced runs. records: the traces are a GPU's own records, so the
// overhead of recording is subtracted from idle time.
std::vector<ProfileRank> times_of_ranks(Communicator& host, const Profile& rows, const std::vector<ProfiledRun>& runs,
                                        const std::vector<double>& plain, bool records);

}  // namespace crest
