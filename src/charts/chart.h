// Shared by line charts in every medium: series, axes, ticks.
#pragma once
#include <string>
#include <vector>

namespace crest {

// Points in drawing order. A non-finite y (or, on a log axis, one that is not positive) leaves a
// gap.
struct Series {
  std::string name;
  std::vector<double> x, y;
};

struct ChartOptions {
  std::string title, x_label, y_label;
  bool log_x = false, log_y = false;
};

// One axis: a range in data units and the map to [0, 1].
struct Axis {
  double low = 0, high = 1;
  bool log = false;
  double place(double value) const;  // NaN when the value is not on this axis
};

// Axes that contain every drawable point, widened slightly in y; a single value gets a range around
// it.
struct ChartAxes {
  Axis x, y;
};
ChartAxes fit_axes(const std::vector<Series>& series, const ChartOptions& options);

// About `count` multiples of 1, 2 or 5 times a power of ten in [low, high]; on a log axis powers of
// ten, with 2 and 5 between them where there is room. At least two for a non-empty range.
std::vector<double> nice_ticks(const Axis& axis, int count);
// Short labels with enough digits to distinguish neighbors: "0.25", "1.5k", "2e-05".
std::vector<std::string> tick_labels(const std::vector<double>& ticks);

}  // namespace crest
