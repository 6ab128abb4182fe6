// One rank of crest comm: joins the others and measures; rank 0 also prints and records.
#pragma once
#include "bench/comm_options.h"

namespace crest {

int run_comm_rank(const CommOptions& options, const RankEnvironment& environment);

// check_sizes_fit() for this host's memory, or for each rank's GPU.
void check_fits_here(const CommOptions& options, const CommPlan& plan, int local_ranks);

}  // namespace crest
