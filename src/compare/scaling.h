// Where the time goes that more ranks lose.
#pragma once
#include <optional>

#include "compare/side.h"

namespace crest {

// Ranks of a run: processes or threads.
int64_t ranks_of(const Json& recipe);

// Two profiles with different numbers of ranks. The ideal step of the side with more ranks is the
// step of the other, scaled by the tokens of a rank. The rows sum to what its step lacks. Nothing
// if the ranks are equal, or a side has no profile or no tokens.
std::optional<Scaling> find_scaling(const ComparedSide& a, const ComparedSide& b);

}  // namespace crest
