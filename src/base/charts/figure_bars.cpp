// Bars: values side by side, parts of a sum, and the steps from one sum to another.
#include <algorithm>
#include <cmath>

#include "charts/figure.h"
#include "charts/plot.h"

namespace crest {

namespace {

constexpr double bar_height = 18, bar_spacing = 4, axis_room = 48;
// Less if labels are above the rows.
double row_spacing(const Rows& rows) { return rows.above() ? 5 : 12; }

double widest(const std::vector<std::string>& texts, bool bold = false) {
  double width = 0;
  for (auto& t : texts) width = std::max(width, text_width(t, 13, bold));
  return width;
}

int tick_count(const Rows& rows) { return rows.right() - rows.left() < 300 ? 3 : 6; }

// The range from zero to the largest value; 1 if there is none.
double positive(double value) { return value > 0 && std::isfinite(value) ? value : 1; }

}  // namespace

Svg draw_bars(const BarChart& chart, double width) {
  std::vector<std::string> labels, texts;
  double most = 0;
  size_t bars = 0;
  for (auto& g : chart.groups) {
    labels.push_back(g.label);
    bars += g.bars.size();
    for (auto& b : g.bars) {
      if (std::isfinite(b.value)) texts.push_back(b.text);
      for (double v : {b.value, b.high})
        if (std::isfinite(v)) most = std::max(most, v);
    }
  }
  if (bars == 0) return draw_note(chart.label, "No values were recorded.", width);
  Rows rows(width, labels, widest(texts, true));
  std::vector<std::pair<std::string, int>> legend;
  for (size_t i = 0; chart.series.size() > 1 && i < chart.series.size(); ++i)
    legend.push_back({chart.series[i], int(i)});
  double group_room = rows.label_height() + row_spacing(rows);
  double content = double(bars) * (bar_height + bar_spacing) + double(chart.groups.size()) * group_room;
  double legend_height = Svg(width, 0, "").legend(0, 0, width, legend);
  Svg svg(width, legend_height + content + axis_room, chart.label);
  double top = svg.legend(0, 0, width, legend);
  Plot plot{rows.left(), top, rows.right(), top + content, {0, positive(most), false}, {}};
  for (double t : ticks_of(plot.x, tick_count(rows)).at)
    svg.line(plot.px(t), plot.top, plot.px(t), plot.bottom, "grid");
  double y = top + row_spacing(rows) / 2;
  for (auto& g : chart.groups) {
    y += rows.label_height();
    double height = double(g.bars.size()) * (bar_height + bar_spacing) - bar_spacing;
    rows.label(svg, g.label, y, height);
    for (size_t i = 0; i < g.bars.size(); ++i, y += bar_height + bar_spacing) {
      const Bar& b = g.bars[i];
      if (!std::isfinite(b.value)) {
        if (b.missing.empty()) continue;
        double w = std::min(plot.right - plot.left, text_width(b.missing) + 28);
        svg.hatched(plot.left, y, w, bar_height, b.tip);
        svg.rect(plot.left + 10, y + 2, w - 20, bar_height - 4, "band");
        svg.text(plot.left + w / 2, y + 13.5, b.missing,
                 {.anchor = Anchor::middle, .look = "ink", .max_width = w - 20});
        continue;
      }
      svg.rect(plot.left, y, plot.px(b.value) - plot.left, bar_height, fill(int(i)), b.tip);
      double end = plot.px(b.value), middle = y + bar_height / 2;
      if (std::isfinite(b.low) && std::isfinite(b.high) && b.high > b.low) {
        double low = plot.px(std::max(0.0, b.low)), high = plot.px(b.high);
        svg.line(low, middle, high, middle, "whisker");
        svg.line(low, middle - 4, low, middle + 4, "whisker");
        svg.line(high, middle - 4, high, middle + 4, "whisker");
        end = std::max(end, high);
      }
      svg.text(end + 7, y + 13.5, b.text, {.look = b.best ? "strong" : ""});
    }
    y += row_spacing(rows);
  }
  if (!rows.above()) svg.line(plot.left, plot.top, plot.left, plot.bottom, "axis");
  draw_x_axis(svg, plot, ticks_of(plot.x, tick_count(rows)), chart.axis, false);
  return svg;
}

Svg draw_ratios(const RatioChart& chart, double width) {
  std::vector<std::string> labels, texts;
  double low = 0.8, high = 1.25;
  auto drawable = [](double v) { return v > 0 && std::isfinite(v); };
  for (auto& r : chart.rows) {
    labels.push_back(r.label), texts.push_back(r.text);
    for (double v : {r.value, r.low, r.high})
      if (drawable(v)) low = std::min(low, v), high = std::max(high, v);
  }
  if (labels.empty()) return draw_note(chart.label, "No values were recorded.", width);
  Rows rows(width, labels, widest(texts));
  double content = double(chart.rows.size()) * (bar_height + row_spacing(rows) + rows.label_height());
  Svg svg(width, content + axis_room, chart.label);
  Plot plot{rows.left(), 0, rows.right(), content, {low / 1.05, high * 1.05, true}, {}};
  Ticks ticks = ticks_of(plot.x, tick_count(rows));
  if (std::none_of(ticks.at.begin(), ticks.at.end(), [](double t) { return std::abs(t - 1) < 1e-9; }))
    ticks.at.push_back(1), ticks.labels.emplace_back("1");
  for (double t : ticks.at) svg.line(plot.px(t), plot.top, plot.px(t), plot.bottom, "grid");
  double y = row_spacing(rows) / 2;
  for (auto& r : chart.rows) {
    y += rows.label_height();
    rows.label(svg, r.label, y, bar_height);
    if (drawable(r.value)) {
      double one = plot.px(1), at = plot.px(r.value), middle = y + bar_height / 2;
      svg.rect(std::min(one, at), y + 3, std::abs(at - one), bar_height - 6, fill(0), r.tip);
      svg.circle(at, middle, 5, fill(0), r.tip);
      if (drawable(r.low) && drawable(r.high) && r.high > r.low)
        svg.line(plot.px(r.low), middle, plot.px(r.high), middle, "whisker");
    }
    svg.text(width - 2, y + 13.5, r.text, {.anchor = Anchor::end, .look = "ink"});
    y += bar_height + row_spacing(rows);
  }
  svg.line(plot.px(1), plot.top, plot.px(1), plot.bottom, "axis");
  draw_x_axis(svg, plot, ticks, chart.axis, false);
  return svg;
}

Svg draw_stack(const StackChart& chart, double width) {
  std::vector<std::string> labels, texts;
  std::vector<bool> used(chart.parts.size()), named(chart.parts.size());  // a part is labeled where it first fits
  double most = 0;
  for (auto& r : chart.rows) {
    double sum = 0;
    for (size_t p = 0; p < r.values.size(); ++p) {
      sum += r.values[p];
      if (r.values[p] > 0) used[p] = true;
    }
    labels.push_back(r.label);
    texts.push_back(r.text);
    most = std::max(most, sum);
  }
  if (most <= 0) return draw_note(chart.label, "Nothing was recorded that adds up.", width);
  Rows rows(width, labels, widest(texts));
  std::vector<std::pair<std::string, int>> legend;
  for (size_t p = 0; p < chart.parts.size(); ++p)
    if (used[p]) legend.push_back({chart.parts[p].name, chart.parts[p].color});
  const double height = 24;
  double content = double(chart.rows.size()) * (height + row_spacing(rows) + rows.label_height());
  Svg svg(width, Svg(width, 0, "").legend(0, 0, width, legend) + content + axis_room, chart.label);
  double top = svg.legend(0, 0, width, legend);
  Plot plot{rows.left(), top, rows.right(), top + content, {0, most, false}, {}};
  Ticks ticks = chart.bytes ? byte_ticks(plot.x, tick_count(rows)) : ticks_of(plot.x, tick_count(rows));
  for (double t : ticks.at) svg.line(plot.px(t), plot.top, plot.px(t), plot.bottom, "grid");
  double y = top + row_spacing(rows) / 2;
  for (auto& r : chart.rows) {
    y += rows.label_height();
    rows.label(svg, r.label, y, height);
    double sum = 0;
    for (size_t p = 0; p < r.values.size(); ++p) {
      if (r.values[p] <= 0) continue;
      double from = plot.px(sum), to = plot.px(sum += r.values[p]);
      svg.rect(from, y, to - from, height, fill(chart.parts[p].color) + " edge", p < r.tips.size() ? r.tips[p] : "");
      const std::string& name = chart.parts[p].name;
      if (!named[p] && r.missing.empty() && text_width(name) + 12 < to - from) {
        named[p] = true;
        svg.text((from + to) / 2, y + 16.5, name,
                 {.anchor = Anchor::middle, .look = ("on" + std::to_string(chart.parts[p].color)).c_str()});
      }
    }
    if (!r.missing.empty()) svg.hatched(plot.left, y, plot.px(sum) - plot.left, height, r.missing);
    svg.text(plot.px(sum) + 7, y + 16.5, r.text, {.look = "ink"});
    y += height + row_spacing(rows);
  }
  if (!rows.above()) svg.line(plot.left, plot.top, plot.left, plot.bottom, "axis");
  draw_x_axis(svg, plot, ticks, chart.axis, false);
  return svg;
}

Svg draw_waterfall(const Waterfall& chart, double width) {
  std::vector<std::string> labels = {chart.from, chart.to}, texts = {chart.start_text, chart.end_text};
  double low = std::min(chart.start, chart.end), high = std::max(chart.start, chart.end), level = chart.start;
  for (auto& s : chart.steps) {
    labels.push_back(s.label);
    texts.push_back(s.text);
    level += s.delta;
    low = std::min(low, level), high = std::max(high, level);
  }
  if (!(high > 0) || !std::isfinite(high - low)) return draw_note(chart.label, "Nothing to compare.", width);
  // If the steps are small against the sums, the axis does not start at zero, and the bars of the
  // sums are cut.
  bool cut = low > 3 * (high - low) && high > low;
  double begin = cut ? low - 0.6 * (high - low) : std::min(0.0, low);
  Rows rows(width, labels, widest(texts, true));
  const double height = 22, spacing = 10;
  double content = double(labels.size()) * (height + spacing + rows.label_height());
  Svg svg(width, content + axis_room, chart.label);
  Plot plot{rows.left(), 0, rows.right(), content, {begin, high, false}, {}};
  Ticks ticks = chart.bytes ? byte_ticks(plot.x, tick_count(rows)) : ticks_of(plot.x, tick_count(rows));
  for (double t : ticks.at) svg.line(plot.px(t), plot.top, plot.px(t), plot.bottom, "grid");
  if (!cut && !rows.above()) svg.line(plot.px(0), plot.top, plot.px(0), plot.bottom, "axis");
  double y = spacing / 2;
  auto row = [&](const std::string& label, double from, double to, int color, const std::string& text,
                 const std::string& tip, bool sum) {
    y += rows.label_height();
    rows.label(svg, label, y, height);
    double x0 = plot.px(std::min(from, to)), x1 = plot.px(std::max(from, to));
    svg.rect(x0, y, std::max(1.0, x1 - x0), height, fill(color), tip);
    if (sum && cut)
      for (double x : {x0 + 10, x0 + 16})
        svg.path("M" + std::to_string(x) + " " + std::to_string(y - 2) + "l-5 26", "edge line");
    svg.text(x1 + 7, y + 15.5, text, {.look = sum ? "strong" : "ink"});
    y += height + spacing;
  };
  double foot = cut ? begin : 0;
  row(chart.from, foot, chart.start, gray, chart.start_text, "", true);
  level = chart.start;
  for (auto& s : chart.steps) {
    svg.line(plot.px(level), y - spacing, plot.px(level), y + rows.label_height(), "axis");
    row(s.label, level, level + s.delta, s.delta > 0 ? 1 : 0, s.text, s.tip, false);
    level += s.delta;
  }
  row(chart.to, foot, chart.end, gray, chart.end_text, "", true);
  draw_x_axis(svg, plot, ticks, cut ? chart.axis + " (does not start at zero)" : chart.axis, false);
  return svg;
}

}  // namespace crest
