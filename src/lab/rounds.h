// Cells that were measured in two rounds: one row out of two, and what differences between cells mean nothing.
// Statistics and their source: docs/guides/lab.md, "Noise".
#pragma once
#include <optional>
#include <vector>

#include "lab/table.h"

namespace crest::lab {

// The cell's row: times and rates are geometric means of the two; their intervals have half the rounds' own (which are
// independent) and reach to what either round found. Extremes, deviations, counts and bytes are those of both together.
Row combine_rounds(const Row& first, const Row& second);

// From the rows that have two rounds: what two cells that are equally fast may differ by, 95%. None below two of them.
struct RoundNoise {
  double relative = 0;  // 0.01: 1%
  size_t cells = 0;
};
std::optional<RoundNoise> noise_of_rounds(const std::vector<Row>& rows);

}  // namespace crest::lab
