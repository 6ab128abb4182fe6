#include "charts/plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "charts/figure.h"

namespace crest {

Ticks ticks_of(const ChartAxis& axis, int count) {
  Ticks t;
  t.at = nice_ticks(axis, count);
  t.labels = tick_labels(t.at);
  return t;
}

Ticks byte_ticks(const ChartAxis& axis, int count) {
  Ticks t;
  double step = 1;
  while ((axis.high - axis.low) / step > count) step *= 2;
  static const char* const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  for (double v = std::ceil(axis.low / step) * step; v <= axis.high * (1 + 1e-12); v += step) {
    int unit = 0;
    for (double size = step; size >= 1024 && unit < 5; size /= 1024) ++unit;
    t.at.push_back(v);
    t.labels.push_back(v == 0 ? "0" : fmt::format("{:.10g} {}", v / std::pow(1024, unit), units[unit]));
  }
  return t;
}

double label_width(const Ticks& ticks) {
  double width = 0;
  for (auto& l : ticks.labels) width = std::max(width, text_width(l));
  return width;
}

void draw_y_axis(Svg& svg, const Plot& p, const Ticks& ticks) {
  for (size_t i = 0; i < ticks.at.size(); ++i) {
    double y = p.py(ticks.at[i]);
    svg.line(p.left, y, p.right, y, "grid");
    svg.text(p.left - 8, y + 4.5, ticks.labels[i], {.anchor = Anchor::end, .optional = true});
  }
}

void draw_x_axis(Svg& svg, const Plot& p, const Ticks& ticks, const std::string& name, bool across) {
  for (size_t i = 0; i < ticks.at.size(); ++i) {
    double x = p.px(ticks.at[i]);
    svg.line(x, across ? p.top : p.bottom, x, p.bottom + 5, "grid");
    // Keep a gap to the neighbors: touching numbers read as one.
    double half = text_width(ticks.labels[i]) / 2 + 5;
    if (!svg.free({x - half, p.bottom + 7, 2 * half, 15})) continue;
    double inside = std::clamp(x, half - 4, svg.width() - half + 4);
    svg.text(inside, p.bottom + 20, ticks.labels[i], {.anchor = Anchor::middle, .optional = true});
  }
  if (!name.empty())
    svg.text((p.left + p.right) / 2, p.bottom + 39, name,
             {.anchor = Anchor::middle, .max_width = std::min(p.left + p.right, 2 * svg.width() - p.left - p.right)});
}

Rows::Rows(double width, const std::vector<std::string>& labels, double value_width)
    : width_(width), right_(width - value_width - 14), above_(width < narrow_width) {
  double widest = 0;
  for (auto& l : labels) widest = std::max(widest, text_width(l));
  left_ = above_ ? 2 : std::min(widest + 12, 0.4 * width);
}

void Rows::label(Svg& svg, const std::string& text, double top, double height) const {
  if (above_)
    svg.text(left_, top - 6, text, {.look = "ink", .max_width = width_ - left_ - 2, .halo = true});
  else
    svg.text(left_ - 12, top + height / 2 + 4.5, text,
             {.anchor = Anchor::end, .look = "ink", .max_width = left_ - 11});  // 1 for rounding
}

}  // namespace crest
