// Where more ranks lose time.
#pragma once
#include <optional>

#include "compare/side.h"

namespace crest {

// The number of ranks of a run, processes or threads.
int64_t ranks_of(const Json& recipe);

// Differences other than the number of ranks and the division of work among them: recipe settings
// with a possible effect on time, and the device.
std::vector<std::string> other_than_ranks(const RunComparison& comparison, const ComparedSide& a);

// Compares two profiles with different numbers of ranks. The ideal step with more ranks is the
// other side's step, scaled by the tokens of a rank. The rows sum to the difference from this
// ideal. None if the ranks are equal, something else differs, or a side lacks a profile or tokens.
// comparison: with differences and noise filled in.
std::optional<Scaling> find_scaling(const RunComparison& comparison, const ComparedSide& a, const ComparedSide& b);

}  // namespace crest
