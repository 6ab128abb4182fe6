// The difference in planned memory by category and by block.
#pragma once
#include "compare/compare.h"
#include "compare/side.h"

namespace crest {

// Fills memory, memory_causes, peak_a and peak_b; both lists sum to the planned bytes where both sides have a profile.
void compare_memory(RunComparison& comparison, const ComparedSide& a, const ComparedSide& b);

}  // namespace crest
