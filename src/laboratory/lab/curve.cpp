#include "lab/curve.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>

#include "stats/samples.h"

namespace crest::lab {

namespace {

struct Repeated {
  double x = 0;  // mean
  std::vector<double> ys;
  double y() const {
    double sum = 0;
    for (double each : ys) sum += each;
    return sum / double(ys.size());
  }
};

struct Point {
  double log_x, y, half;  // half: of y's 95% interval
};
using Curve = std::vector<Point>;  // in the order of x

using Keys = std::map<std::string, std::string>;
Keys without(Keys keys, std::initializer_list<const char*> names) {
  for (const char* name : names) keys.erase(name);
  return keys;
}

Keys curve_keys(const Row& row) { return without(row.keys, {"seed", "status", "steps", "warmup"}); }

Curve curve_of(const std::vector<Repeated>& points) {
  double squares = 0;
  int64_t freedom = 0;
  for (auto& p : points) {
    for (double y : p.ys) squares += std::pow(y / p.y() - 1, 2);
    freedom += int64_t(p.ys.size()) - 1;
  }
  const double spread = freedom ? student_t_975(freedom) * std::sqrt(squares / double(freedom)) : 0;
  Curve curve;
  for (auto& p : points)
    curve.push_back({std::log(p.x), p.y(), std::abs(p.y()) * spread / std::sqrt(double(p.ys.size()))});
  std::sort(curve.begin(), curve.end(), [](auto& a, auto& b) { return a.log_x < b.log_x; });
  return curve;
}

// The x on the line through two points; none if it does not fall.
std::optional<double> on_line(const Point& a, const Point& b, double shift, double level) {
  const double from = a.y + shift * a.half, to = b.y + shift * b.half;
  if (from <= to) return {};
  return std::exp(a.log_x + (b.log_x - a.log_x) * (from - level) / (from - to));
}

// Between two points of the curve, moved by `shift` halves of its band; none: nowhere.
std::optional<double> crossing(const Curve& c, double shift, double level) {
  for (size_t i = 0; i + 1 < c.size(); ++i)
    if (c[i].y + shift * c[i].half > level && c[i + 1].y + shift * c[i + 1].half <= level)
      return on_line(c[i], c[i + 1], shift, level);
  return {};
}

Value reached(const Curve& c, double level) {
  const double x = *crossing(c, 0, level);
  if (c[0].half == 0 && c.back().half == 0) return Value::number(x);
  auto low = crossing(c, -1, level), high = crossing(c, 1, level);
  if (!low) low = on_line(c[0], c[1], -1, level);
  if (!high) high = on_line(c[c.size() - 2], c.back(), 1, level);
  if (!low || !high) return Value::missing("seeds differ by more than longer training gains");
  return Value::range(x, std::min(x, *low), std::max(x, *high));
}

}  // namespace

Value until(const std::vector<const Row*>& rows, const std::string& y, const std::string& x, double level) {
  std::map<Keys, Repeated> points;
  std::set<Keys> failed;  // a curve without its diverged seeds would look better than it is
  std::string missing = no_row;
  Unit unit = Unit::number;
  for (auto* row : rows) {
    const Value at = column_of(*row, x), v = column_of(*row, y);
    const bool numbers = at.type == Value::Type::number && v.type == Value::Type::number;
    if (auto status = row->keys.find("status"); status != row->keys.end() && status->second == "failed")
      failed.insert(curve_keys(*row));
    if (!at.known() || !v.known() || !numbers || !(at.x > 0)) {
      missing = !v.known() ? v.unknown : !at.known() ? at.unknown : fmt::format("{} or {} is no positive number", x, y);
      continue;
    }
    Repeated& p = points[without(row->keys, {"seed", "status"})];
    p.ys.push_back(v.x);
    p.x += (at.x - p.x) / double(p.ys.size());
    unit = at.unit;
  }
  if (points.empty()) return Value::missing(missing);
  std::map<Keys, std::vector<Repeated>> curves;
  for (auto& [keys, point] : points) curves[without(keys, {"steps", "warmup"})].push_back(point);

  std::optional<Value> first;
  const Point* lowest = nullptr;
  std::vector<Curve> kept;
  for (auto& [keys, list] : curves)
    if (!failed.count(keys)) kept.push_back(curve_of(list));
  if (kept.empty()) return Value::missing("a training of every curve failed");
  for (const Curve& curve : kept) {
    if (curve[0].y <= level)
      return Value::missing(
          fmt::format("the shortest training, with {} {:.4g}, reaches {:.4g} already: add a shorter one", x,
                      std::exp(curve[0].log_x), level));
    for (auto& p : curve)
      if (!lowest || p.y < lowest->y) lowest = &p;
    if (!crossing(curve, 0, level)) continue;
    const Value v = reached(curve, level);
    if (!v.known()) return v;
    if (!first || v.x < first->x) first = v;
  }
  if (first) return first->in(unit);
  return Value::missing(
      fmt::format("{} does not fall to {:.5g}: {:.5g} at {} {:.4g}", y, level, lowest->y, x, std::exp(lowest->log_x)));
}

}  // namespace crest::lab
