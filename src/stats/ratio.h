// The one test of whether two times differ. It works in logarithms: what is said of B against A mirrors what is said of
// A against B, and a noise floor of 60% is a factor of 1.6 either way.
#pragma once
#include <cstdint>
#include <utility>
#include <vector>

#include "stats/samples.h"

namespace crest {

enum class Verdict { a_faster, b_faster, cannot_tell };
// "a_faster", "b_faster", "cannot_tell"
const char* name(Verdict verdict);
// Of B against A, when `verdict` is that of A against B.
Verdict mirrored(Verdict verdict);

// 95% percentile bootstrap interval (Efron and Tibshirani 1993, ch. 13) of median(b) / median(a). paired: rounds are
// resampled as a whole, since what slowed a round down slowed both of its samples; else each side on its own.
Interval ratio_interval(const std::vector<double>& a, const std::vector<double>& b, bool paired, uint64_t seed = 1);

// |ln ratio| in terms of a floor: 0.25 for a ratio of 1.25 and for one of 0.8.
double relative_size(double ratio);
// A verdict needs an interval that excludes 1 and a ratio beyond the floor.
Verdict verdict_of(double ratio, const Interval& interval, double floor);
// The floor that an A/A comparison gives: the far end of its interval.
double floor_of(const Interval& same);

// Of cells that were measured in two rounds, by the times of both: what two cells that are equally fast may differ by,
// 95%. Negative below two cells.
double floor_of_rounds(const std::vector<std::pair<double, double>>& rounds);

}  // namespace crest
