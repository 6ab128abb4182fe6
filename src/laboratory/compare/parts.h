// The parts of a comparison, one file each: differences, settings, memory.
#pragma once
#include <vector>

#include "compare/compare.h"
#include "compare/side.h"

namespace crest {

// All differences except measured times: recipe, device, versions, kernels, conditions.
std::vector<Difference> find_differences(const ComparedSide& a, const ComparedSide& b);

// Attributes each group's difference to settings, device or versions by the effects of the
// settings. Fills Cause::settings and RunComparison::settings from causes and differences.
void explain_by_settings(RunComparison& comparison);

// Replaces RunComparison::settings and fills attribution, if steps with some of the changes were
// measured along with the two runs (document "changes").
void explain_by_measured_changes(RunComparison& comparison, const RunRecord& a, const RunRecord& b);

// Whether no known difference can affect times.
bool nothing_changed(const RunComparison& comparison);

// The difference in planned memory by category and by block. Fills memory, memory_causes, peak_a
// and peak_b. Both lists sum to the planned bytes if both sides have a profile.
void compare_memory(RunComparison& comparison, const ComparedSide& a, const ComparedSide& b);

}  // namespace crest
