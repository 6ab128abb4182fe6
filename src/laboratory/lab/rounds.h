// Combines a measurement's two rounds into one row, and finds the noise floor between measurements.
// Statistics and their source: docs/reference/lab.md, "Noise".
#pragma once
#include <optional>
#include <vector>

#include "lab/table.h"

namespace crest::lab {

// The combined row of a measurement. Times and rates are geometric means. Their intervals combine
// half of each round's interval (rounds are independent) and include the values of both rounds.
// Extremes, deviations, counts and bytes cover both rounds together.
Row combine_rounds(const Row& first, const Row& second);

// By how much two equally fast measurements may differ, 95%, from rows with two rounds. None with
// fewer than two rows.
struct RoundNoise {
  double relative = 0;  // 0.01: 1%
  size_t measurements = 0;
};
std::optional<RoundNoise> noise_of_rounds(const std::vector<Row>& rows);

}  // namespace crest::lab
