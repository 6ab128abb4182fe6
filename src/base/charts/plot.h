// Shared by drawings: a frame with axes and ticks, and labeled rows.
#pragma once
#include <string>
#include <vector>

#include "charts/chart.h"
#include "charts/svg.h"

namespace crest {

// A rectangle of a picture with two axes.
struct Plot {
  double left = 0, top = 0, right = 0, bottom = 0;
  ChartAxis x, y;
  double px(double v) const { return left + x.place(v) * (right - left); }
  double py(double v) const { return bottom - y.place(v) * (bottom - top); }
};

struct Ticks {
  std::vector<double> at;
  std::vector<std::string> labels;
};
Ticks ticks_of(const ChartAxis& axis, int count);
// Ticks at multiples of a power of two bytes: "512 MiB".
Ticks byte_ticks(const ChartAxis& axis, int count);

// The width of the labels of a vertical axis.
double label_width(const Ticks& ticks);
// Lines across the plot, with labels to its left.
void draw_y_axis(Svg& svg, const Plot& plot, const Ticks& ticks);
// Labels below the plot (without overlapping ones); `across`: lines over its height; the axis name
// below.
void draw_x_axis(Svg& svg, const Plot& plot, const Ticks& ticks, const std::string& name, bool across);

// Rows of a picture, with labels left of the plot, or above each row in a narrow picture.
class Rows {
 public:
  // value_width: the width of the widest text next to a row.
  Rows(double width, const std::vector<std::string>& labels, double value_width);
  double left() const { return left_; }
  double right() const { return right_; }
  bool above() const { return above_; }
  double label_height() const { return above_ ? 20 : 0; }
  // Draws the label of a row with its content at [top, top + height]; `top` is below
  // label_height().
  void label(Svg& svg, const std::string& text, double top, double height) const;

 private:
  double width_, left_, right_;
  bool above_;
};

}  // namespace crest
