// Two recipes under different CUDA libraries, measured now: a process opens its libraries once, so every turn is a
// crest profile in a process of its own.
#pragma once
#include "cli/compare_measure.h"

namespace crest {

// What makes two sides impossible to measure in one process.
bool need_processes(const CellOptions& a, const CellOptions& b);

// A, B and A again in every round, as in one process; a sample is the median of a process. The profile of a side is
// that of the turn nearest to the side's median.
MeasuredPair measure_in_processes(const CompareMeasureOptions& options, const CellOptions& a, const CellOptions& b);

}  // namespace crest
