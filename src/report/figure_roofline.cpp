// Rate against arithmetic intensity below the machine's measured limits.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/text.h"
#include "report/figure.h"
#include "report/plot.h"

namespace crest {

namespace {

constexpr size_t most_labels = 14;

bool drawable(const RoofDot& d) { return d.intensity > 0 && d.rate > 0 && std::isfinite(d.intensity * d.rate); }

// Ranges that hold the dots, the ceilings and the corner where bandwidth meets the highest of them.
void fit(Plot& plot, const Roofline& chart) {
  double x0 = 1e300, x1 = 0, y0 = 1e300, y1 = 0;
  for (auto& d : chart.dots)
    if (drawable(d)) {
      x0 = std::min(x0, d.intensity), x1 = std::max(x1, d.intensity);
      y0 = std::min(y0, d.rate), y1 = std::max(y1, d.rate);
    }
  for (auto& [name, peak] : chart.ceilings) {
    y1 = std::max(y1, peak);
    if (chart.bandwidth > 0) x1 = std::max(x1, 4 * peak / chart.bandwidth);
  }
  plot.x = {std::pow(10, std::floor(std::log10(x0 / 1.5))), x1 * 1.5, true};
  plot.y = {std::pow(10, std::floor(std::log10(y0 / 1.5))), y1 * 2, true};
}

void draw_ceilings(Svg& svg, const Plot& plot, const Roofline& chart) {
  double highest = 0;
  for (auto& [name, peak] : chart.ceilings) highest = std::max(highest, peak);
  if (chart.bandwidth > 0) {
    double from = std::max(plot.x.low, plot.y.low / chart.bandwidth);
    double to = highest > 0 ? std::min(plot.x.high, highest / chart.bandwidth) : plot.x.high;
    svg.path(fmt::format("M{:.1f} {:.1f}L{:.1f} {:.1f}", plot.px(from), plot.py(from * chart.bandwidth), plot.px(to),
                         plot.py(to * chart.bandwidth)),
             "line axis", "memory bandwidth");
    std::string said = "bandwidth " + format_si(chart.bandwidth, "B/s");
    double at = from * std::pow(to / from, 0.6);
    svg.text(plot.px(at) - 12, plot.py(at * chart.bandwidth), said, {.anchor = Anchor::end, .optional = true});
  }
  for (auto& [name, peak] : chart.ceilings) {
    double from = chart.bandwidth > 0 ? std::max(plot.x.low, peak / chart.bandwidth) : plot.x.low;
    svg.line(plot.px(from), plot.py(peak), plot.right, plot.py(peak), "line axis");
    svg.text(plot.right, plot.py(peak) - 6, fmt::format("{} {}", name, format_si(peak, "FLOP/s")),
             {.anchor = Anchor::end, .optional = true});
    svg.reserve({plot.px(from), plot.py(peak) - 2, plot.right - plot.px(from), 4});
  }
}

// Beside, above or below its dot, where there is room.
void label_dot(Svg& svg, const RoofDot& d, double x, double y, double r) {
  TextStyle style{.look = "small", .optional = true, .halo = true};
  if (svg.text(x + r + 4, y + 4, d.label, style)) return;
  style.anchor = Anchor::end;
  if (svg.text(x - r - 4, y + 4, d.label, style)) return;
  style.anchor = Anchor::middle;
  if (svg.text(x, y - r - 5, d.label, style)) return;
  svg.text(x, y + r + 12, d.label, style);
}

}  // namespace

Svg draw_roofline(const Roofline& chart, double width) {
  std::vector<RoofDot> dots;
  for (auto& d : chart.dots)
    if (drawable(d)) dots.push_back(d);
  if (dots.empty()) return draw_note(chart.label, "No instruction has FLOPs, bytes and a time.", width);
  std::sort(dots.begin(), dots.end(), [](auto& a, auto& b) { return a.weight > b.weight; });
  std::vector<std::pair<std::string, int>> legend;
  for (auto& p : chart.parts)
    if (std::any_of(dots.begin(), dots.end(), [&](auto& d) { return d.color == p.color; }))
      legend.push_back({p.name, p.color});
  double height = std::clamp(0.55 * width, 300.0, 460.0);
  Svg svg(width, Svg(width, 0, "").legend(0, 0, width, legend) + height + 46, chart.label);
  double top = svg.legend(0, 0, width, legend) + 24;
  svg.text(0, top - 10, "FLOP/s", {});
  Plot plot{0, top, width - 12, top + height - 24, {}, {}};
  fit(plot, chart);
  Ticks ys = ticks_of(plot.y, 6);
  plot.left = label_width(ys) + 12;
  draw_y_axis(svg, plot, ys);
  draw_x_axis(svg, plot, ticks_of(plot.x, width < narrow_width ? 5 : 9), "arithmetic intensity, FLOP per byte", true);
  draw_ceilings(svg, plot, chart);
  auto radius = [&](const RoofDot& d) {
    return 3 + (width < narrow_width ? 16 : 26) * std::sqrt(std::clamp(d.weight, 0.0, 1.0));
  };
  for (auto& d : dots) {
    double x = plot.px(d.intensity), y = plot.py(d.rate);
    svg.circle(x, y, radius(d), fill(d.color) + " dot " + stroke(d.color), d.tip);
    double r = 0.7 * radius(d);  // a label may touch its rim
    svg.reserve({x - r, y - r, 2 * r, 2 * r});
  }
  if (dots.size() > most_labels) dots.resize(most_labels);
  for (auto& d : dots) label_dot(svg, d, plot.px(d.intensity), plot.py(d.rate), radius(d));
  return svg;
}

}  // namespace crest
