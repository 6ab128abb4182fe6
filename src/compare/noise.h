// Whether two times can be told apart.
#pragma once
#include <vector>

#include "compare/compare.h"

namespace crest {

// Ratio of medians b / a with its 95% percentile bootstrap interval (Efron and Tibshirani 1993, ch. 13): samples of
// each side are resampled on their own, or together by round when `paired`. A verdict needs an interval that excludes 1
// and a difference above the floor. Without a measured floor (negative) 1% is taken; with fewer than three samples on a
// side there is no interval, and only differences above 10% are told.
NoiseCheck check_noise(const std::vector<double>& a, const std::vector<double>& b, double floor, bool paired);

}  // namespace crest
