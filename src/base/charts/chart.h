// Shared by line charts in every medium: series, axes, ticks.
#pragma once
#include <string>
#include <vector>

namespace crest {

// Points in drawing order. A non-finite y (or, on a log axis, a y not above 0) leaves a gap.
struct Series {
  std::string name;
  std::vector<double> x, y;
  int color = -1;  // svg.h; negative: by its place in the chart
  enum class Look { solid, faint, dashed } look = Look::solid;
  bool in_legend = true;
};

struct ChartOptions {
  std::string title, x_label, y_label;
  bool log_x = false, log_y = false;
};

// The series without its noise: local lines, weighted by a bell as wide as a few percent of the
// points, at no more than a few hundred places. Looks as far ahead as back, so nothing is delayed.
Series smoothed(const Series& series);

// The curves of one training run in one color: the loss as logged, smoothed, and of validation.
std::vector<Series> loss_curves(const std::string& name, const Series& train, const Series& validation, int color);
// The meanings of the looks of loss_curves().
inline constexpr const char* loss_curves_key = "thin: as logged; thick: smoothed; dashed: validation";

// One axis: a range in data units and the map to [0, 1].
struct ChartAxis {
  double low = 0, high = 1;
  bool log = false;
  double place(double value) const;  // NaN when the value is not on this axis
};

// Axes around every drawable point, widened slightly in y. A single value gets a range around it.
struct ChartAxes {
  ChartAxis x, y;
};
ChartAxes fit_axes(const std::vector<Series>& series, const ChartOptions& options);

// About `count` multiples of 1, 2 or 5 times a power of ten in [low, high]; on a log axis powers of
// ten, with 2 and 5 between them where there is room. At least two for a non-empty range.
std::vector<double> nice_ticks(const ChartAxis& axis, int count);
// Short labels with enough digits to distinguish neighbors: "0.25", "1.5k", "2e-05".
std::vector<std::string> tick_labels(const std::vector<double>& ticks);

}  // namespace crest
