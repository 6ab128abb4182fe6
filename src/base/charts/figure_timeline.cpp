// A timeline: tracks of intervals on a time axis.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "charts/figure.h"
#include "charts/plot.h"

namespace crest {

namespace {

constexpr double track_height = 18, track_spacing = 6;

// One path for all intervals of a color on a track. Intervals closer than half a pixel are merged,
// and none is thinner. So a picture of 100,000 intervals stays small and still shows all work.
std::string pieces(const std::vector<Span>& spans, int part, const Plot& plot, double y) {
  std::vector<std::pair<double, double>> joined;
  for (auto& s : spans) {
    if (s.part != part || !(s.length > 0)) continue;
    double from = plot.px(s.start), to = std::max(plot.px(s.start + s.length), from + 0.5);
    if (!joined.empty() && from <= joined.back().second + 0.5 && from >= joined.back().first)
      joined.back().second = std::max(joined.back().second, to);
    else
      joined.push_back({from, to});
  }
  std::string d;
  for (auto& [from, to] : joined)
    d += fmt::format("M{:.1f} {:.1f}h{:.2f}v{:.0f}H{:.1f}z", from, y, to - from, track_height, from);
  return d;
}

}  // namespace

Svg draw_timeline(const Timeline& chart, double width) {
  std::vector<std::string> labels;
  std::map<int, double> sums;
  for (auto& t : chart.tracks) {
    labels.push_back(t.label);
    for (auto& s : t.spans) sums[s.part] += s.length;
  }
  if (sums.empty() || !(chart.end > 0)) return draw_note(chart.label, "No intervals were recorded.", width);
  Rows rows(width, labels, 0);
  std::vector<std::pair<std::string, int>> legend;
  for (auto& [part, sum] : sums) legend.push_back({chart.parts[size_t(part)].name, chart.parts[size_t(part)].color});
  double content = double(chart.tracks.size()) * (track_height + track_spacing + rows.label_height());
  Svg svg(width, Svg(width, 0, "").legend(0, 0, width, legend) + content + 48, chart.label);
  double top = svg.legend(0, 0, width, legend);
  Plot plot{rows.left(), top, rows.right(), top + content, {0, chart.end, false}, {}};
  Ticks ticks = ticks_of(plot.x, width < narrow_width ? 4 : 8);
  for (double t : ticks.at) svg.line(plot.px(t), plot.top, plot.px(t), plot.bottom, "grid");
  double y = top + track_spacing / 2;
  for (auto& t : chart.tracks) {
    y += rows.label_height();
    rows.label(svg, t.label, y, track_height);
    svg.rect(plot.left, y, plot.right - plot.left, track_height, "band");
    for (auto& [part, sum] : sums) {
      double own = 0;
      size_t count = 0;
      for (auto& s : t.spans)
        if (s.part == part) own += s.length, ++count;
      if (own <= 0) continue;
      svg.path(pieces(t.spans, part, plot, y), fill(chart.parts[size_t(part)].color),
               fmt::format("{}, {}: {:.3g} ms in {} pieces", t.label, chart.parts[size_t(part)].name, own, count));
    }
    y += track_height + track_spacing;
  }
  draw_x_axis(svg, plot, ticks, chart.axis, false);
  return svg;
}

}  // namespace crest
