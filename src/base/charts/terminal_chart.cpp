#include "charts/terminal_chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "core/text.h"
#include "terminal/table.h"

namespace crest {

namespace {

constexpr const char* markers[] = {"", "o", "x", "+", "*", "#"};
constexpr const char* colors[] = {"\x1b[36m", "\x1b[33m", "\x1b[32m", "\x1b[35m", "\x1b[34m", "\x1b[31m"};

// A raster of braille dots, overlaid with markers.
class Canvas {
 public:
  Canvas(int columns, int rows) : columns_(columns), rows_(rows), dots_(size_t(columns * rows)), mark_(dots_.size()) {}
  int dot_columns() const { return columns_ * 2; }
  int dot_rows() const { return rows_ * 4; }

  void dot(int x, int y) {
    if (x < 0 || y < 0 || x >= dot_columns() || y >= dot_rows()) return;
    static const uint8_t bit[4][2] = {{0x01, 0x08}, {0x02, 0x10}, {0x04, 0x20}, {0x40, 0x80}};  // U+2800's layout
    dots_[cell(x, y)] |= bit[y % 4][x % 2];
  }
  // Bresenham's line.
  void line(int x0, int y0, int x1, int y1) {
    int dx = std::abs(x1 - x0), dy = -std::abs(y1 - y0), sx = x0 < x1 ? 1 : -1, sy = y0 < y1 ? 1 : -1, e = dx + dy;
    while (true) {
      dot(x0, y0);
      if (x0 == x1 && y0 == y1) return;
      int twice = 2 * e;
      if (twice >= dy) e += dy, x0 += sx;
      if (twice <= dx) e += dx, y0 += sy;
    }
  }
  void marker(int x, int y, uint8_t series) {
    if (x >= 0 && y >= 0 && x < dot_columns() && y < dot_rows()) mark_[cell(x, y)] = series;
  }
  std::string row(int r, bool color) const {
    std::string text;
    for (int c = 0; c < columns_; ++c) {
      size_t i = size_t(r * columns_ + c);
      bool empty = !dots_[i] && !mark_[i];
      std::string glyph = mark_[i] ? markers[mark_[i]] : braille(dots_[i]);
      text += empty ? " " : color ? colors[mark_[i]] + glyph + "\x1b[0m" : glyph;
    }
    text.erase(text.find_last_not_of(' ') + 1);
    return text;
  }

 private:
  size_t cell(int x, int y) const { return size_t(y / 4 * columns_ + x / 2); }
  static std::string braille(uint8_t dots) { return {char(0xE2), char(0xA0 | dots >> 6), char(0x80 | (dots & 0x3F))}; }
  int columns_, rows_;
  std::vector<uint8_t> dots_, mark_;
};

void draw(Canvas& canvas, const Series& s, uint8_t number, const ChartAxes& axes) {
  bool pen_down = false;
  int last_x = 0, last_y = 0;
  for (size_t i = 0; i < std::min(s.x.size(), s.y.size()); ++i) {
    double u = axes.x.place(s.x[i]), v = axes.y.place(s.y[i]);
    if (!std::isfinite(u) || !std::isfinite(v)) {
      pen_down = false;
      continue;
    }
    int x = int(std::lround(u * (canvas.dot_columns() - 1))), y = int(std::lround((1 - v) * (canvas.dot_rows() - 1)));
    if (number > 0)
      canvas.marker(x, y, number);
    else if (pen_down)
      canvas.line(last_x, last_y, x, y);
    else
      canvas.dot(x, y);
    pen_down = true, last_x = x, last_y = y;
  }
}

// Labels centered under their positions; a label too close to its neighbor is omitted.
std::string x_axis_labels(const std::vector<double>& places, const std::vector<std::string>& labels, int margin,
                          int columns) {
  std::string line(size_t(margin + columns), ' ');
  int free_from = 0;
  for (size_t i = 0; i < places.size(); ++i) {
    int size = int(labels[i].size()), middle = margin + int(std::lround(places[i] * (columns - 1)));
    int start = std::clamp(middle - size / 2, 0, std::max(0, int(line.size()) - size));
    if (start < free_from) continue;
    line.replace(size_t(start), size_t(size), labels[i]);
    free_from = start + size + 1;
  }
  line.erase(line.find_last_not_of(' ') + 1);
  return line;
}

std::string legend(const std::vector<Series>& series, const ChartOptions& o, bool color) {
  std::vector<std::string> parts;
  for (size_t i = 0; i < series.size(); ++i) {
    if (series[i].name.empty()) continue;
    size_t number = i % std::size(markers);
    std::string glyph = i == 0 ? "\u2812\u2812" : markers[std::max<size_t>(number, 1)];
    if (color) glyph = colors[number] + glyph + "\x1b[0m";
    parts.push_back(glyph + " " + printable(series[i].name, 40));
  }
  if (!o.x_label.empty()) parts.push_back("x: " + printable(o.x_label, 40));
  return join(parts, "   ");
}

}  // namespace

std::string terminal_chart(const std::vector<Series>& series, const ChartOptions& options, int width, int height,
                           bool color) {
  width = std::max(width, 24), height = std::max(height, 5);
  ChartAxes axes = fit_axes(series, options);
  bool any = false;
  for (auto& s : series)
    for (size_t i = 0; i < std::min(s.x.size(), s.y.size()); ++i)
      any = any || (std::isfinite(axes.x.place(s.x[i])) && std::isfinite(axes.y.place(s.y[i])));
  if (!any) return "";

  std::string title = printable(options.title, 200), key = legend(series, options, color);
  int rows = height - 2 - !title.empty() - !key.empty();
  auto ys = nice_ticks(axes.y, std::max(2, rows / 2));
  auto y_labels = tick_labels(ys);
  size_t margin = 0;
  for (auto& l : y_labels) margin = std::max(margin, l.size());
  int columns = width - int(margin) - 2;

  Canvas canvas(columns, rows);
  for (size_t i = 0; i < series.size(); ++i)
    draw(canvas, series[i], uint8_t(i == 0 ? 0 : std::max<size_t>(i % std::size(markers), 1)), axes);

  std::vector<std::string> left(size_t(rows), std::string(margin, ' ') + " \u2502");
  for (size_t i = 0; i < ys.size(); ++i) {
    double place = axes.y.place(ys[i]);
    if (place < -1e-9 || place > 1 + 1e-9) continue;
    auto r = size_t(std::clamp(int(std::lround((1 - place) * (rows * 4 - 1))) / 4, 0, rows - 1));
    left[r] = std::string(margin - y_labels[i].size(), ' ') + y_labels[i] + " \u2524";
  }
  std::string out = title.empty() ? "" : fit_width(title, size_t(width)) + "\n";
  for (int r = 0; r < rows; ++r) out += left[size_t(r)] + canvas.row(r, color) + "\n";
  out += std::string(margin, ' ') + " \u2514";
  for (int c = 0; c < columns; ++c) out += "\u2500";
  auto xs = nice_ticks(axes.x, std::max(2, columns / 12));
  std::vector<double> places;
  for (double x : xs) places.push_back(axes.x.place(x));
  out += "\n" + x_axis_labels(places, tick_labels(xs), int(margin) + 2, columns) + "\n";
  if (!key.empty()) out += (color ? key : fit_width(key, size_t(width))) + "\n";
  return out;
}

}  // namespace crest
