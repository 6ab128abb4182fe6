// The one test of whether two times differ. It works in logarithms, so the verdicts for B against A
// and A against B mirror each other, and a noise floor of 60% is a factor of 1.6 either way.
#pragma once
#include <cstdint>
#include <utility>
#include <vector>

#include "stats/samples.h"

namespace crest {

enum class Verdict { a_faster, b_faster, cannot_tell };
// "a_faster", "b_faster", "cannot_tell"
const char* name(Verdict verdict);
// The verdict for B against A, given the one for A against B.
Verdict mirrored(Verdict verdict);

// 95% percentile bootstrap interval (Efron and Tibshirani 1993, ch. 13) of median(b) / median(a).
// paired: rounds are resampled as a whole, since a slow round slows both of its samples; otherwise
// each side on its own.
Interval ratio_interval(const std::vector<double>& a, const std::vector<double>& b, bool paired, uint64_t seed = 1);

// |ln ratio| as a relative difference: 0.25 for a ratio of 1.25 and for one of 0.8.
double relative_size(double ratio);
// A side is faster only if the interval excludes 1 and the ratio exceeds the floor.
Verdict verdict_of(double ratio, const Interval& interval, double floor);
// The noise floor from an A/A comparison: the far end of its interval.
double floor_of(const Interval& same);

// From the times of measurements taken in two rounds: by how much two equally fast measurements may
// differ, 95%. Negative below two measurements.
double floor_of_rounds(const std::vector<std::pair<double, double>>& rounds);

}  // namespace crest
