// Charts as data, and their drawings. A page shows a wide drawing or, on a phone, a narrow one
// (below `narrow_width`, with labels above their rows). Without data, the drawing says so.
#pragma once
#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "charts/chart.h"
#include "charts/svg.h"

namespace crest {

inline constexpr double narrow_width = 520;

// Lines. Long series are reduced to the lowest and highest point of each pixel column, so spikes
// stay visible.
Svg draw_lines(const std::vector<Series>& series, const ChartOptions& options, double width, double height = 0);
// A complete file with a title.
std::string line_chart_svg(const std::vector<Series>& series, const ChartOptions& options, int width = 800,
                           int height = 450);

// Bars from zero, one group of rows per label.
struct Bar {
  double value = std::numeric_limits<double>::quiet_NaN();
  double low = std::numeric_limits<double>::quiet_NaN(), high = low;  // whiskers; NaN: none
  std::string text;                                                   // shown next to the bar
  std::string missing;                                                // why there is no value: "out of memory"
  std::string tip;
  bool best = false;
};
struct BarGroup {
  std::string label;
  std::vector<Bar> bars;  // one per series
};
struct BarChart {
  std::string label, axis;          // of the figure; of the values
  std::vector<std::string> series;  // names; a single series needs none
  std::vector<BarGroup> groups;
};
Svg draw_bars(const BarChart& chart, double width);

// Ratios as bars from 1, on a logarithmic axis: twice and half are equally far.
struct RatioRow {
  std::string label, text, tip;                                       // text: at the right edge
  double value = 1;                                                   // positive
  double low = std::numeric_limits<double>::quiet_NaN(), high = low;  // whiskers; NaN: none
};
struct RatioChart {
  std::string label, axis;
  std::vector<RatioRow> rows;
};
Svg draw_ratios(const RatioChart& chart, double width);

// A part of a sum, with its color (svg.h).
struct Part {
  std::string name;
  int color = 0;
};
// Rows of parts and their sum.
struct StackRow {
  std::string label, text;  // text: the sum, next to the row
  std::vector<double> values;
  std::string missing;
  std::vector<std::string> tips;
};
struct StackChart {
  std::string label, axis;
  std::vector<Part> parts;
  std::vector<StackRow> rows;
  bool bytes = false;  // ticks in powers of 1024
};
Svg draw_stack(const StackChart& chart, double width);

// From one sum to another in signed steps.
struct WaterfallStep {
  std::string label, text;
  double delta = 0;
  std::string tip;
};
struct Waterfall {
  std::string label, axis;
  std::string from, to;  // names of the two sums
  double start = 0, end = 0;
  std::string start_text, end_text;
  std::vector<WaterfallStep> steps;
  bool bytes = false;
};
Svg draw_waterfall(const Waterfall& chart, double width);

// A timeline: intervals on tracks, colored by part.
struct Span {
  double start = 0, length = 0;
  int part = 0;
};
struct Track {
  std::string label;
  std::vector<Span> spans;
};
struct Timeline {
  std::string label, axis;
  std::vector<Part> parts;
  std::vector<Track> tracks;
  double end = 0;
};
Svg draw_timeline(const Timeline& chart, double width);

// Stacked parts over a sequence of positions, with named ranges of positions.
struct Stretch {
  size_t first = 0, last = 0;
  std::string name;
  int color = 0;
};
struct AreaChart {
  std::string label, x_axis;
  std::vector<Part> parts;
  std::vector<std::vector<double>> values;  // [part][position], bytes
  std::vector<Stretch> stretches;
  std::string peak;  // label of the highest position
};
Svg draw_areas(const AreaChart& chart, double width);

// The roofline: work against the limits of the machine (Williams, Waterman, Patterson 2009).
struct RoofDot {
  std::string label, tip;
  double intensity = 0, rate = 0;  // FLOP per byte, FLOP/s
  double weight = 0;               // share of the time, 0 to 1
  int color = 0;
};
struct Roofline {
  std::string label;
  double bandwidth = 0;                                  // bytes/s
  std::vector<std::pair<std::string, double>> ceilings;  // name, FLOP/s
  std::vector<Part> parts;                               // legend
  std::vector<RoofDot> dots;
};
Svg draw_roofline(const Roofline& chart, double width);

// A picture with a message instead of data.
Svg draw_note(const std::string& label, const std::string& note, double width);

}  // namespace crest
