// Where a curve of measurements reaches a level: the tokens or the time until a loss.
#pragma once
#include <string>
#include <vector>

#include "lab/table.h"

namespace crest::lab {

// The x at which y falls to `level`. Rows that differ only in `steps`, `warmup` and `seed` are one
// curve, and rows that differ only in `seed` are one point: their means. The curve is a line
// between two points, over log x. Of several curves, the first to reach the level counts.
//
// The interval is where the curve's 95% band reaches the level: Student's t, with one relative
// spread of seeds for all points of the curve. It may end beyond the points, on the line through
// the nearest two. The largest relative interval of an x widens it. Without repeated seeds the
// value of an exact x is exact.
//
// A curve with a failed training does not count. Missing, with the reason: if no curve reaches the
// level, or a shortest training has already.
Value until(const std::vector<const Row*>& rows, const std::string& y, const std::string& x, double level);

}  // namespace crest::lab
