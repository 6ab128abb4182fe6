// Which part of the recipe (or device, or versions) explains which group's difference: one table.
#pragma once
#include <vector>

#include "compare/compare.h"

namespace crest {

// Fills Cause::levers and RunComparison::levers from causes and differences.
void explain_by_levers(RunComparison& comparison);

}  // namespace crest
