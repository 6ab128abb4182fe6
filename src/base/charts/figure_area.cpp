// Stacked areas over a sequence: memory over the instructions of a step.
#include <fmt/format.h>

#include <algorithm>

#include "charts/figure.h"
#include "charts/plot.h"

namespace crest {

namespace {

constexpr double strip = 18;

// Positions to draw: in each pixel column the one with the largest sum, so no peak is lost.
std::vector<size_t> thinned(const std::vector<double>& sums, double width) {
  std::vector<size_t> keep;
  double per_column = std::max(1.0, double(sums.size()) / width);
  for (double at = 0; at < double(sums.size()); at += per_column) {
    auto first = sums.begin() + ptrdiff_t(at);
    auto last = sums.begin() + ptrdiff_t(std::min(double(sums.size()), std::max(at + 1, at + per_column)));
    keep.push_back(size_t(std::max_element(first, last) - sums.begin()));
  }
  return keep;
}

void draw_stretches(Svg& svg, const Plot& plot, const std::vector<Stretch>& stretches) {
  for (auto& s : stretches) {
    double from = plot.px(double(s.first)), to = plot.px(double(s.last) + 1);
    svg.rect(from, plot.bottom + 4, to - from, strip, fill(s.color) + " edge", s.name);
    if (text_width(s.name) + 10 < to - from)
      svg.text((from + to) / 2, plot.bottom + 17.5, s.name,
               {.anchor = Anchor::middle, .look = fmt::format("on{}", s.color % colors).c_str()});
  }
}

void draw_peak(Svg& svg, const Plot& plot, size_t at, double sum, const std::string& said) {
  double x = plot.px(double(at) + 0.5), y = plot.py(sum);
  svg.circle(x, y, 4, "ink");
  double width = std::min(text_width(said, 13, true), plot.right - plot.left);
  double left = std::clamp(x - width / 2, plot.left, plot.right - width);
  svg.text(left, y - 10, said, {.look = "strong", .max_width = width, .halo = true});
}

}  // namespace

Svg draw_areas(const AreaChart& chart, double width) {
  size_t positions = chart.values.empty() ? 0 : chart.values[0].size();
  std::vector<double> sums(positions);
  std::vector<std::pair<std::string, int>> legend;
  for (size_t p = 0; p < chart.values.size(); ++p) {
    for (size_t i = 0; i < positions; ++i) sums[i] += chart.values[p][i];
    if (std::any_of(chart.values[p].begin(), chart.values[p].end(), [](double v) { return v > 0; }))
      legend.push_back({chart.parts[p].name, chart.parts[p].color});
  }
  double most = positions ? *std::max_element(sums.begin(), sums.end()) : 0;
  if (!(most > 0)) return draw_note(chart.label, "No memory was recorded.", width);
  double height = width < narrow_width ? 240 : 300;
  Svg svg(width, Svg(width, 0, "").legend(0, 0, width, legend) + height + 70, chart.label);
  double top = svg.legend(0, 0, width, legend);
  Plot plot{0, top + 6, width - 2, top + height, {0, double(positions), false}, {0, most * 1.12, false}};
  Ticks ys = byte_ticks(plot.y, 6);
  plot.left = label_width(ys) + 12;
  draw_y_axis(svg, plot, ys);
  std::vector<size_t> keep = thinned(sums, plot.right - plot.left);
  std::vector<double> below(positions, 0);
  for (size_t p = 0; p < chart.values.size(); ++p) {
    std::string up, down;
    for (size_t k = 0; k < keep.size(); ++k) {
      // Steps: an instruction's value holds from its start to the start of the next.
      size_t i = keep[k];
      double from = plot.px(k == 0 ? 0 : double(i)),
             to = plot.px(k + 1 < keep.size() ? double(keep[k + 1]) : double(positions));
      double y1 = plot.py(below[i] + chart.values[p][i]), y0 = plot.py(below[i]);
      up += fmt::format("{}{:.1f} {:.1f}H{:.1f}", k ? "L" : "M", from, y1, to);
      down = fmt::format("L{:.1f} {:.1f}H{:.1f}", to, y0, from) + down;
    }
    for (size_t i = 0; i < positions; ++i) below[i] += chart.values[p][i];
    bool any = std::any_of(chart.values[p].begin(), chart.values[p].end(), [](double v) { return v > 0; });
    if (any) svg.path(up + down + "z", fill(chart.parts[p].color), chart.parts[p].name);
  }
  draw_stretches(svg, plot, chart.stretches);
  size_t peak = size_t(std::max_element(sums.begin(), sums.end()) - sums.begin());
  if (!chart.peak.empty()) draw_peak(svg, plot, peak, sums[peak], chart.peak);
  Plot axis = plot;
  axis.bottom += strip + 4;
  draw_x_axis(svg, axis, ticks_of(plot.x, width < narrow_width ? 4 : 8), chart.x_axis, false);
  return svg;
}

}  // namespace crest
