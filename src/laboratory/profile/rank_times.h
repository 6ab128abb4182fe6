// What each rank of a step did with its time, from the times at which all ranks entered and left
// their collectives.
#pragma once
#include <vector>

#include "profile/overlap.h"
#include "profile/profile.h"

namespace crest {

// One profiled step of a rank, in seconds on its own clock.
struct RankStep {
  // By collective, in the order of the step, which is that of all ranks; empty: it did nothing.
  std::vector<TimeSpan> collectives;
  double seconds = 0;  // from its start to its end, as the host saw it
  // Work that is no communication; that hides communication; and all work. Each merged.
  std::vector<TimeSpan> other, hiding, work;
};

// The collectives of a step on all ranks.
using RankCollectives = std::vector<std::vector<TimeSpan>>;  // by rank

// Seconds to add to a rank's clock to get rank 0's. A collective ends on all ranks at nearly the
// same time, so the offset is the median difference of the ends, over all steps.
std::vector<double> clock_offsets(const std::vector<RankCollectives>& steps);

// Times of one step of `rank`, in milliseconds; step_ms stays 0. A rank waits in a collective from
// its own arrival to that of the last rank. The rest of a collective is transfer. Of both, what
// runs alongside other work is hidden. compute + exposed + all waiting + idle is the span of the
// work; with host it is all seconds.
ProfileRank rank_times(const RankStep& own, const RankCollectives& all, const std::vector<double>& offsets, int rank);

}  // namespace crest
