// Rate against arithmetic intensity, with the limits of the machine.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "charts/figure.h"
#include "charts/plot.h"
#include "core/text.h"

namespace crest {

namespace {

constexpr size_t most_labels = 14;

bool drawable(const RoofDot& d) { return d.intensity > 0 && d.rate > 0 && std::isfinite(d.intensity * d.rate); }

// Ranges around the dots, the ceilings, and the corner of bandwidth and the highest ceiling.
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

// Above its line, as far right as possible.
void label_ceiling(Svg& svg, const Plot& plot, double left, double y, const std::string& said) {
  for (double right = plot.right; right > left; right -= 20)
    if (svg.text(right, y - 7, said, {.anchor = Anchor::end, .optional = true, .halo = true})) return;
}

void draw_ceilings(Svg& svg, const Plot& plot, const Roofline& chart) {
  for (auto& [name, peak] : chart.ceilings) {
    double from = chart.bandwidth > 0 ? std::max(plot.x.low, peak / chart.bandwidth) : plot.x.low;
    svg.line(plot.px(from), plot.py(peak), plot.right, plot.py(peak), "line axis");
    svg.reserve({plot.px(from), plot.py(peak) - 2, plot.right - plot.px(from), 4});
    label_ceiling(svg, plot, plot.px(from), plot.py(peak), fmt::format("{} {}", name, format_si(peak, "FLOP/s")));
  }
  if (chart.bandwidth <= 0) return;
  double highest = 0;
  for (auto& [name, peak] : chart.ceilings) highest = std::max(highest, peak);
  double from = std::max(plot.x.low, plot.y.low / chart.bandwidth);
  double to = highest > 0 ? std::min(plot.x.high, highest / chart.bandwidth) : plot.x.high;
  auto y_at = [&](double x) { return plot.py(x * chart.bandwidth); };
  svg.path(fmt::format("M{:.1f} {:.1f}L{:.1f} {:.1f}", plot.px(from), y_at(from), plot.px(to), y_at(to)), "line axis",
           "memory bandwidth");
}

// Left of its line, away from the dots.
void label_bandwidth(Svg& svg, const Plot& plot, const Roofline& chart) {
  if (chart.bandwidth <= 0) return;
  std::string said = "bandwidth " + format_si(chart.bandwidth, "B/s");
  double highest = plot.y.high;
  for (auto& [name, peak] : chart.ceilings) highest = std::min(plot.y.high, peak);
  for (double share = 0.95; share > 0.2; share -= 0.05) {
    double rate = plot.y.low * std::pow(highest / plot.y.low, share);
    double x = plot.px(rate / chart.bandwidth) - 14;
    if (x < plot.right && svg.text(x, plot.py(rate) + 4, said, {.anchor = Anchor::end, .optional = true, .halo = true}))
      return;
  }
}

// Near its dot, where there is room.
void label_dot(Svg& svg, const RoofDot& d, double x, double y, double r) {
  struct Place {
    Anchor anchor;
    double x, y;
  };
  double side = r + 4, slant = 0.7 * r + 3;
  for (auto& p : {Place{Anchor::start, side, 4},
                  {Anchor::end, -side, 4},
                  {Anchor::middle, 0, -r - 5},
                  {Anchor::middle, 0, r + 13},
                  {Anchor::start, slant, -slant},
                  {Anchor::start, slant, slant + 8},
                  {Anchor::end, -slant, -slant},
                  {Anchor::end, -slant, slant + 8}})
    if (svg.text(x + p.x, y + p.y, d.label, {.anchor = p.anchor, .look = "small", .optional = true, .halo = true}))
      return;
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
  auto radius = [&](const RoofDot& d) {
    return 3 + (width < narrow_width ? 16 : 26) * std::sqrt(std::clamp(d.weight, 0.0, 1.0));
  };
  for (auto& d : dots) {
    double x = plot.px(d.intensity), y = plot.py(d.rate);
    svg.circle(x, y, radius(d), fill(d.color) + " dot " + stroke(d.color), d.tip);
    double r = 0.7 * radius(d);  // a label may touch the dot's edge
    svg.reserve({x - r, y - r, 2 * r, 2 * r});
  }
  draw_ceilings(svg, plot, chart);
  label_bandwidth(svg, plot, chart);
  if (dots.size() > most_labels) dots.resize(most_labels);
  for (auto& d : dots) label_dot(svg, d, plot.px(d.intensity), plot.py(d.rate), radius(d));
  return svg;
}

}  // namespace crest
