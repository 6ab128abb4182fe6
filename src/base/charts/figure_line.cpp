// Line figures: loss curves, sweeps.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "charts/figure.h"
#include "charts/plot.h"

namespace crest {

namespace {

// In each pixel column the path keeps the first, lowest, highest and last point.
std::string path_of(const Series& s, const Plot& f) {
  struct Point {
    double x, y;
  };
  std::string path;
  bool pen_down = false;
  std::vector<Point> column;
  auto flush = [&] {
    if (column.empty()) return;
    auto [low, high] = std::minmax_element(column.begin(), column.end(), [](auto& a, auto& b) { return a.y < b.y; });
    std::vector<ptrdiff_t> keep = {0, low - column.begin(), high - column.begin(), ptrdiff_t(column.size()) - 1};
    std::sort(keep.begin(), keep.end());
    keep.erase(std::unique(keep.begin(), keep.end()), keep.end());
    for (ptrdiff_t i : keep) {
      path += fmt::format("{}{:.1f} {:.1f}", pen_down ? "L" : "M", column[size_t(i)].x, column[size_t(i)].y);
      pen_down = true;
    }
    column.clear();
  };
  for (size_t i = 0; i < std::min(s.x.size(), s.y.size()); ++i) {
    Point p{f.px(s.x[i]), f.py(s.y[i])};
    if (!std::isfinite(p.x) || !std::isfinite(p.y)) {
      flush();
      pen_down = false;
      continue;
    }
    if (!column.empty() && std::floor(column[0].x) != std::floor(p.x)) flush();
    column.push_back(p);
  }
  flush();
  return path;
}

int color_of(const std::vector<Series>& series, size_t i) { return series[i].color < 0 ? int(i) : series[i].color; }

}  // namespace

Svg draw_lines(const std::vector<Series>& series, const ChartOptions& options, double width, double height) {
  if (height <= 0) height = std::clamp(0.5 * width, 260.0, 400.0);
  std::vector<std::pair<std::string, int>> names;
  for (size_t i = 0; i < series.size(); ++i)
    if (!series[i].name.empty() && series[i].in_legend) names.push_back({series[i].name, color_of(series, i)});
  Svg svg(width, height, options.title);
  double top = svg.legend(0, 0, width, names) + 26;
  if (!options.y_label.empty()) svg.text(0, top - 12, options.y_label, {.max_width = width});
  Plot plot{0, top, width - 12, height - 46, {}, {}};
  ChartAxes axes = fit_axes(series, options);
  plot.x = axes.x, plot.y = axes.y;
  Ticks ys = ticks_of(plot.y, 6), xs = ticks_of(plot.x, width < narrow_width ? 4 : 8);
  plot.left = label_width(ys) + 12;
  draw_y_axis(svg, plot, ys);
  draw_x_axis(svg, plot, xs, options.x_label, false);
  for (size_t i = 0; i < series.size(); ++i) {
    auto& s = series[i];
    std::string path = path_of(s, plot);
    int color = color_of(series, i);
    bool dashed = s.look == Series::Look::dashed || (s.color < 0 && i >= colors);
    if (!path.empty())
      svg.path(path,
               fmt::format("line {}{}{}", stroke(color),
                           dashed             ? " dashed"
                           : s.x.size() > 300 ? " dense"
                                              : "",
                           s.look == Series::Look::faint ? " faint" : ""),
               s.name);
    // Markers for curves with few points: they would be hard to see, and a single point invisible.
    if (s.x.size() > 30 || (s.look == Series::Look::faint && s.x.size() > 1)) continue;
    for (size_t j = 0; j < std::min(s.x.size(), s.y.size()); ++j)
      if (double x = plot.px(s.x[j]), y = plot.py(s.y[j]); std::isfinite(x) && std::isfinite(y))
        svg.circle(x, y, 3.5, fill(color), fmt::format("{:.6g}: {:.6g}", s.x[j], s.y[j]));
  }
  return svg;
}

std::string line_chart_svg(const std::vector<Series>& series, const ChartOptions& options, int width, int height) {
  return draw_lines(series, options, width, height - 38).file(options.title);
}

Svg draw_note(const std::string& label, const std::string& note, double width) {
  Svg svg(width, 60, label);
  svg.rect(0, 0, width, 60, "band");
  svg.text(width / 2, 35, note, {.anchor = Anchor::middle, .max_width = width - 24});
  return svg;
}

}  // namespace crest
