// How each rank of a step spent its time, from the times when all ranks entered and left their
// collectives.
#pragma once
#include <vector>

#include "profile/overlap.h"
#include "profile/profile.h"
#include "stats/middle_half.h"

namespace crest {

// One profiled step of a rank, in seconds on its own clock.
struct RankStep {
  // In the order of the step, the same on all ranks. An empty span: nothing was done.
  std::vector<TimeSpan> collectives;
  double seconds = 0;  // from start to end, as seen by the host
  // Work without communication, work that hides communication, and all work. Each merged.
  std::vector<TimeSpan> other, hiding, work;
};

// The collectives of a step on all ranks.
using RankCollectives = std::vector<std::vector<TimeSpan>>;  // by rank

// Seconds to add to a rank's clock to get rank 0's. A collective ends at nearly the same time on
// all ranks, so the offset is the median difference of the ends, over all steps.
std::vector<double> clock_offsets(const std::vector<RankCollectives>& steps);

// Times of one step of `rank` in milliseconds; step_ms stays 0. In a collective, a rank waits from
// its own arrival to the last rank's; the rest is transfer. Waiting or transfer alongside other
// work is hidden. compute + exposed + all waiting + idle is the span of the work; with host it is
// the full time.
ProfileRank rank_times(const RankStep& own, const RankCollectives& all, const std::vector<double>& offsets, int rank);

}  // namespace crest
