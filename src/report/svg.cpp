#include "report/svg.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>

#include "core/error.h"
#include "report/table.h"

namespace crest {

std::string escape_xml(std::string_view text) {
  std::string out;
  for (char c : text) {
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '"': out += "&quot;"; break;
      case '\'': out += "&#39;"; break;
      default:
        if (uint8_t(c) < 0x20 && c != '\t' && c != '\n')
          out += "\xEF\xBF\xBD";
        else
          out += c;
    }
  }
  return valid_utf8(out);
}

namespace {

struct Frame {
  double left, top, right, bottom;  // of the plot area, in pixels
  ChartAxes axes;
  double px(double v) const { return left + axes.x.place(v) * (right - left); }
  double py(double v) const { return bottom - axes.y.place(v) * (bottom - top); }
};

// Colours of Okabe and Ito, told apart by colour-blind readers; the dark variants are lighter.
// Plain classes, no custom properties: picture viewers know these, and dark mode overrides them where it exists.
std::string style() {
  static const char* const light[] = {"#0072b2", "#d55e00", "#009e73", "#b0578d", "#a07400", "#56708c"};
  static const char* const dark[] = {"#56b4e9", "#ff9b52", "#3fd0a4", "#e39ac4", "#f0d25c", "#a9c0d8"};
  auto palette = [](const char* const(&colors)[6], const char* paper, const char* ink, const char* soft,
                    const char* grid) {
    std::string css =
        fmt::format(".paper {{ fill: {} }} text {{ fill: {} }} .title {{ fill: {} }} .grid {{ stroke: {} }}\n", paper,
                    soft, ink, grid);
    for (int i = 0; i < 6; ++i)
      css += fmt::format(".s{} {{ stroke: {} }} .f{} {{ fill: {} }}\n", i, colors[i], i, colors[i]);
    return css;
  };
  return "<style>\ntext { font: 13px system-ui, sans-serif }\n.title { font-size: 16px; font-weight: 600 }\n"
         ".grid { stroke-width: 1 }\n.line { fill: none; stroke-width: 2; stroke-linejoin: round }\n" +
         palette(light, "#ffffff", "#1c2126", "#5c6670", "#e3e7eb") + "@media (prefers-color-scheme: dark) {\n" +
         palette(dark, "#15191d", "#e8ebee", "#a3adb7", "#333a42") + "}\n</style>\n";
}

// The path through the points of one pixel column keeps its first, lowest, highest and last point.
std::string path_of(const Series& s, const Frame& f) {
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

std::string draw_axes(const Frame& f, const ChartOptions& o, int height) {
  std::string out;
  auto ys = nice_ticks(f.axes.y, 6), xs = nice_ticks(f.axes.x, 7);
  auto y_labels = tick_labels(ys), x_labels = tick_labels(xs);
  for (size_t i = 0; i < ys.size(); ++i)
    out += fmt::format(
        "<line class=\"grid\" x1=\"{:.1f}\" x2=\"{:.1f}\" y1=\"{:.1f}\" y2=\"{:.1f}\"/>"
        "<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"end\">{}</text>\n",
        f.left, f.right, f.py(ys[i]), f.py(ys[i]), f.left - 8, f.py(ys[i]) + 4, y_labels[i]);
  for (size_t i = 0; i < xs.size(); ++i)
    out += fmt::format(
        "<line class=\"grid\" x1=\"{:.1f}\" x2=\"{:.1f}\" y1=\"{:.1f}\" y2=\"{:.1f}\"/>"
        "<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">{}</text>\n",
        f.px(xs[i]), f.px(xs[i]), f.bottom, f.bottom + 5, f.px(xs[i]), f.bottom + 19, x_labels[i]);
  out += fmt::format("<text x=\"{:.1f}\" y=\"{}\" text-anchor=\"middle\">{}</text>\n", (f.left + f.right) / 2,
                     height - 8, escape_xml(o.x_label));
  double middle = (f.top + f.bottom) / 2;
  out +=
      fmt::format("<text x=\"16\" y=\"{:.1f}\" text-anchor=\"middle\" transform=\"rotate(-90 16 {:.1f})\">{}</text>\n",
                  middle, middle, escape_xml(o.y_label));
  return out;
}

}  // namespace

std::string line_chart_svg(const std::vector<Series>& series, const ChartOptions& options, int width, int height) {
  Frame f{72, 64, double(width) - 20, double(height) - 52, fit_axes(series, options)};
  std::string out = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"{}\">\n"
      "<title>{}</title>\n{}<rect width=\"100%\" height=\"100%\" class=\"paper\"/>\n"
      "<text class=\"title\" x=\"{}\" y=\"26\">{}</text>\n",
      width, height, escape_xml(options.title), escape_xml(options.title), style(), f.left, escape_xml(options.title));
  out += draw_axes(f, options, height);
  double legend = f.left;
  for (size_t i = 0; i < series.size(); ++i) {
    size_t color = i % 6;
    std::string name = escape_xml(series[i].name);
    std::string path = path_of(series[i], f);
    if (!path.empty())
      out += fmt::format("<path class=\"line s{}\"{} d=\"{}\"/>\n", color, i >= 6 ? " stroke-dasharray=\"6 4\"" : "",
                         path);
    // A validation curve of a few points would otherwise be hard to see, and one point invisible.
    if (series[i].x.size() <= 30)
      for (size_t j = 0; j < std::min(series[i].x.size(), series[i].y.size()); ++j)
        if (double x = f.px(series[i].x[j]), y = f.py(series[i].y[j]); std::isfinite(x) && std::isfinite(y))
          out += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3\" class=\"f{}\"/>\n", x, y, color);
    if (name.empty()) continue;
    out += fmt::format(
        "<rect x=\"{:.1f}\" y=\"42\" width=\"18\" height=\"4\" rx=\"2\" class=\"f{}\"/>"
        "<text x=\"{:.1f}\" y=\"49\">{}</text>\n",
        legend, color, legend + 24, name);
    legend += 24 + 7.5 * double(display_width(series[i].name)) + 20;
  }
  return out + "</svg>\n";
}

void write_text_file(const std::string& path, std::string_view text) {
  std::string temporary = fmt::format("{}.{}.tmp", path, getpid());
  std::FILE* file = std::fopen(temporary.c_str(), "wb");
  int error = errno;
  bool good = file && std::fwrite(text.data(), 1, text.size(), file) == text.size();
  if (file && !good) error = errno;
  if (file && std::fclose(file) != 0) good = false, error = errno;
  if (good && std::rename(temporary.c_str(), path.c_str()) != 0) good = false, error = errno;
  if (good) return;
  std::remove(temporary.c_str());
  fail(fmt::format("cannot write: {}", std::strerror(error)), path, "Check the folder and the free space.");
}

}  // namespace crest
