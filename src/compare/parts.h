// The parts of a comparison, each in a file of its name: differences, levers, memory.
#pragma once
#include <vector>

#include "compare/compare.h"
#include "compare/side.h"

namespace crest {

// What is not the same on both sides before anything is measured: recipe, device, versions, kernels, conditions.
std::vector<Difference> find_differences(const ComparedSide& a, const ComparedSide& b);

// Which part of the recipe (or device, or versions) explains which group's difference, by the settings' own effects.
// Fills Cause::levers and RunComparison::levers from causes and differences.
void explain_by_levers(RunComparison& comparison);

// The difference in planned memory by category and by block.
// Fills memory, memory_causes, peak_a and peak_b; both lists sum to the planned bytes where both sides have a profile.
void compare_memory(RunComparison& comparison, const ComparedSide& a, const ComparedSide& b);

}  // namespace crest
