// The parts of a comparison, one file each: differences, settings, memory.
#pragma once
#include <vector>

#include "compare/compare.h"
#include "compare/side.h"

namespace crest {

// What differs apart from the measured times: recipe, device, versions, kernels, conditions.
std::vector<Difference> find_differences(const ComparedSide& a, const ComparedSide& b);

// Attributes the difference of each group to recipe settings, device or versions, using the
// settings' effects. Fills Cause::settings and RunComparison::settings from causes and differences.
void explain_by_settings(RunComparison& comparison);

// Replaces RunComparison::settings where steps with some of the changes were measured along with
// the two runs (document "changes"), and fills attribution.
void explain_by_measured_changes(RunComparison& comparison, const RunRecord& a, const RunRecord& b);

// Whether nothing differs that can change times, as far as is known.
bool nothing_changed(const RunComparison& comparison);

// The difference in planned memory by category and by block. Fills memory, memory_causes, peak_a
// and peak_b; both lists sum to the planned bytes where both sides have a profile.
void compare_memory(RunComparison& comparison, const ComparedSide& a, const ComparedSide& b);

}  // namespace crest
