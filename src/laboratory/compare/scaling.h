// Where the time goes that more ranks lose.
#pragma once
#include <optional>

#include "compare/side.h"

namespace crest {

// Ranks of a run: processes or threads.
int64_t ranks_of(const Json& recipe);

// What differs besides ranks, how they share the work, and how much of it each has: recipe settings
// that can affect time, and the device.
std::vector<std::string> other_than_ranks(const RunComparison& comparison, const ComparedSide& a);

// Two profiles with different numbers of ranks. The ideal step of the side with more ranks is the
// step of the other, scaled by the tokens of a rank. The rows sum to what its step lacks. Nothing
// if the ranks are equal, something else differs, or a side has no profile or no tokens.
// comparison: with its differences and its noise.
std::optional<Scaling> find_scaling(const RunComparison& comparison, const ComparedSide& a, const ComparedSide& b);

}  // namespace crest
