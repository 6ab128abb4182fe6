#include "lab/lab_figures.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <optional>
#include <set>
#include <tuple>

#include "charts/figure.h"
#include "core/text.h"
#include "lab/columns.h"
#include "report/phrases.h"
#include "report/report_data.h"

namespace crest::lab {

namespace {

constexpr size_t most_bars = 16, most_lines = 12;

// "100MB" and "4096" as a number.
std::optional<double> size_of(const std::string& text) {
  char* end = nullptr;
  double x = std::strtod(text.c_str(), &end);
  std::string unit = end;
  if (text.empty() || end == text.c_str() || !std::isfinite(x)) return std::nullopt;
  for (auto& [name, factor] : {std::pair<const char*, double>{"", 1}, {"kB", 1e3}, {"MB", 1e6}, {"GB", 1e9}})
    if (unit == name) return x * factor;
  return std::nullopt;
}

std::string key_text(const Row& row, const std::string& key) {
  auto it = row.keys.find(key);
  return it == row.keys.end() ? "" : it->second;
}

std::string row_label(const Row& row, const std::vector<std::string>& keys, const std::string& except = "") {
  std::vector<std::string> parts;
  for (auto& key : keys)
    if (std::string value = key_text(row, key); key != except && !value.empty())
      parts.push_back(setting_label({key, value}));
  return join(parts, ", ");
}

Value column_value(const Row& row, const std::string& column) {
  if (!row.absent.empty()) return Value::missing(row.absent);
  Value v = column_of(row, column);
  return v.known() && v.type == Value::Type::number && std::isfinite(v.x) ? v : Value::missing("not a number");
}

// The first column with different values; "": none.
std::string telling_column(const std::vector<Row>& rows, const std::vector<std::string>& columns) {
  for (auto& column : columns) {
    double low = INFINITY, high = -INFINITY;
    for (auto& row : rows)
      if (Value v = column_value(row, column); v.known()) low = std::min(low, v.x), high = std::max(high, v.x);
    if (low >= 0 && high > low * 1.001) return column;
  }
  return "";
}

// Bytes are drawn in the largest fitting unit.
struct AxisUnit {
  double size = 1;
  std::string name;
};
AxisUnit unit_of(const std::vector<Row>& rows, const std::string& column) {
  double most = 0;
  for (auto& row : rows)
    if (Value v = column_value(row, column); v.known()) most = std::max(most, v.x);
  AxisUnit unit{1, column_words(column)};
  if (!column.ends_with("_bytes")) return unit;
  for (const char* name : {"KiB", "MiB", "GiB", "TiB"})
    if (most / unit.size >= 1024) unit.size *= 1024, unit.name = column_words(column) + ", " + name;
  return unit;
}

// The key to draw lines along: the key with most numbers in a line, at least three; "": none. A
// seed is a number, but not a quantity.
std::string sweep_key(const std::vector<Row>& rows, const std::vector<std::string>& keys) {
  std::string best;
  size_t most = 2;
  for (auto& key : keys) {
    std::map<std::string, std::set<double>> lines;
    bool numbers = key != "seed";
    for (auto& row : rows)
      if (auto x = size_of(key_text(row, key)))
        lines[row_label(row, keys, key)].insert(*x);
      else
        numbers = false;
    size_t longest = 0;
    for (auto& [name, values] : lines) longest = std::max(longest, values.size());
    if (numbers && longest > most) most = longest, best = key;
  }
  return best;
}

PageTable numbers_of(const std::vector<Row>& rows, const std::vector<std::string>& keys, const std::string& column) {
  PageTable t;
  t.columns = {{"measurement", Align::left}, {column_words(column)}};
  for (auto& row : rows)
    t.rows.push_back(
        {row_label(row, keys), row.absent.empty() ? format_value(column, column_of(row, column)) : row.absent});
  return t;
}

std::function<Svg(double)> lines(const std::vector<Row>& rows, const std::vector<std::string>& keys,
                                 const std::string& column, const std::string& along, const std::string& title) {
  AxisUnit unit = unit_of(rows, column);
  std::vector<Series> series;
  double low = INFINITY, high = 0, least = INFINITY, most = 0;
  for (auto& row : rows) {
    Value v = column_value(row, column);
    if (!v.known()) continue;
    std::string name = row_label(row, keys, along);
    auto it = std::find_if(series.begin(), series.end(), [&](auto& s) { return s.name == name; });
    if (it == series.end() && series.size() >= most_lines) continue;
    if (it == series.end()) it = series.insert(series.end(), Series{name, {}, {}});
    double x = *size_of(key_text(row, along)), y = v.x / unit.size;
    it->x.push_back(x), it->y.push_back(y);
    low = std::min(low, x), high = std::max(high, x), least = std::min(least, y), most = std::max(most, y);
  }
  for (auto& s : series) {
    std::vector<std::pair<double, double>> points;
    for (size_t i = 0; i < s.x.size(); ++i) points.push_back({s.x[i], s.y[i]});
    std::sort(points.begin(), points.end());
    for (size_t i = 0; i < points.size(); ++i) std::tie(s.x[i], s.y[i]) = points[i];
  }
  ChartOptions options{title, spaced(along), unit.name, low > 0 && high / low >= 8, least > 0 && most / least >= 30};
  return [series, options](double width) { return draw_lines(series, options, width); };
}

std::function<Svg(double)> bars(const std::vector<Row>& rows, const std::vector<std::string>& keys,
                                const std::string& column, const std::string& title) {
  AxisUnit unit = unit_of(rows, column);
  BarChart chart;
  chart.label = title, chart.axis = unit.name;
  for (auto& row : rows) {
    Bar bar;
    Value v = column_value(row, column);
    if (v.known()) {
      bar.value = v.x / unit.size, bar.low = v.low / unit.size, bar.high = v.high / unit.size;
      bar.text = format_value(column, Value::number(v.x));
    } else {
      bar.missing = fit_text(row.absent.empty() ? "not recorded" : row.absent, 200);
    }
    if (chart.groups.size() < most_bars) chart.groups.push_back({row_label(row, keys), {bar}});
  }
  return [chart](double width) { return draw_bars(chart, width); };
}

}  // namespace

std::string column_words(const std::string& column) {
  if (column == "ms") return "median ms";
  if (column == "tokens_per_second") return "tokens/s";
  if (column == "tflops") return "TFLOP/s";
  std::string words = spaced(column);
  for (auto& [end, by] : {std::pair<std::string, std::string>{" gb per second", ", GB/s"}, {" bytes", " memory"}})
    if (words.ends_with(end)) words.replace(words.size() - end.size(), end.size(), by);
  return words;
}

std::vector<std::string> naming_keys(const std::vector<Row>& rows) {
  std::vector<std::string> chosen;
  auto name = [&](const Row& row) {
    std::vector<std::string> values;
    for (auto& key : chosen) values.push_back(key_text(row, key));
    return values;
  };
  for (auto& key : telling_keys(rows)) {
    std::map<std::vector<std::string>, std::string> value_by_name;
    bool follows = true;
    for (auto& row : rows)
      follows &= value_by_name.emplace(name(row), key_text(row, key)).first->second == key_text(row, key);
    if (!follows) chosen.push_back(key);
  }
  return chosen;
}

void add_measurements_figure(std::vector<PageBlock>& blocks, const std::vector<Row>& rows,
                             const std::vector<std::string>& columns) {
  std::vector<std::string> keys = naming_keys(rows);
  std::string column = telling_column(rows, columns);
  if (rows.size() < 2 || keys.empty() || column.empty()) return;
  std::string along = sweep_key(rows, keys);
  std::string words = column_words(column);
  Figure f;
  f.title = along.empty() ? "Measurements" : "Sweep over " + spaced(along);
  words[0] = char(std::toupper(uint8_t(words[0])));
  f.caption.add(words + (along.empty() ? " of each measurement." : " over " + spaced(along) + "."));
  if (along.empty() && rows.size() > most_bars)
    f.caption.add(fmt::format(" The table has {} more.", rows.size() - most_bars));
  if (!along.empty()) {
    std::set<std::string> names;
    for (auto& row : rows)
      if (column_value(row, column).known()) names.insert(row_label(row, keys, along));
    if (names.size() > most_lines)
      f.caption.add(fmt::format(" {} more lines are in the table.", names.size() - most_lines));
  }
  std::string title = f.title + ": " + f.caption.plain();
  f.draw = along.empty() ? bars(rows, keys, column, title) : lines(rows, keys, column, along, title);
  f.numbers = numbers_of(rows, keys, column);
  blocks.push_back(f);
}

}  // namespace crest::lab
