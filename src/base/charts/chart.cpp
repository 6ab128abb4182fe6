#include "charts/chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

namespace crest {

double ChartAxis::place(double v) const {
  if (!std::isfinite(v) || (log && v <= 0)) return std::numeric_limits<double>::quiet_NaN();
  if (log) return std::log(v / low) / std::log(high / low);
  return (v - low) / (high - low);
}

namespace {

struct Range {
  double low = std::numeric_limits<double>::infinity(), high = -low;
  void add(double v) { low = std::min(low, v), high = std::max(high, v); }
};

ChartAxis axis_of(Range r, bool log, double margin) {
  if (r.low > r.high) return log ? ChartAxis{1, 10, true} : ChartAxis{0, 1, false};
  if (log) {
    if (r.low == r.high) return {r.low / 2, r.high * 2, true};
    double factor = std::pow(r.high / r.low, margin);
    return {r.low / factor, r.high * factor, true};
  }
  // Values equal up to rounding count as one; a finer axis could not be labeled.
  double scale = std::max(std::abs(r.low), std::abs(r.high));
  if (r.high - r.low <= 1e-12 * scale) {
    double half = scale > 0 ? scale / 2 : 0.5;
    return {r.low - half, r.high + half, false};
  }
  double extra = margin * (r.high - r.low);
  return {r.low - extra, r.high + extra, false};
}

}  // namespace

ChartAxes fit_axes(const std::vector<Series>& series, const ChartOptions& options) {
  Range x, y;
  for (auto& s : series)
    for (size_t i = 0; i < std::min(s.x.size(), s.y.size()); ++i) {
      bool drawable = std::isfinite(s.x[i]) && std::isfinite(s.y[i]) && (!options.log_x || s.x[i] > 0) &&
                      (!options.log_y || s.y[i] > 0);
      if (drawable) x.add(s.x[i]), y.add(s.y[i]);
    }
  return {axis_of(x, options.log_x, 0), axis_of(y, options.log_y, 0.03)};
}

static std::vector<double> linear_ticks(double low, double high, int count) {
  std::vector<double> ticks;
  double step = std::pow(10, std::floor(std::log10((high - low) / count)));
  for (double m : {1.0, 2.0, 5.0, 10.0})
    if ((high - low) / (step * m) <= count || m == 10) {
      step *= m;
      break;
    }
  double slack = 1e-9 * (high - low);
  auto inside = [&](double s) { return std::floor((high + slack) / s) - std::ceil((low - slack) / s) + 1; };
  for (int halvings = 0; inside(step) < 2 && halvings < 2; ++halvings) step /= 2;
  for (double k = std::ceil((low - slack) / step); k * step <= high + slack; ++k) ticks.push_back(k * step);
  return ticks;
}

Series smoothed(const Series& series) {
  constexpr size_t most_places = 400;
  std::vector<double> x, y;
  for (size_t i = 0; i < std::min(series.x.size(), series.y.size()); ++i)
    if (std::isfinite(series.x[i]) && std::isfinite(series.y[i])) x.push_back(series.x[i]), y.push_back(series.y[i]);
  Series out = series;
  out.x.clear(), out.y.clear();
  size_t n = x.size(), places = std::min(n, most_places);
  const double widest = std::max(1.5, 0.02 * double(n));  // of the bell, in points
  for (size_t k = 0; k < places; ++k) {
    size_t at = places > 1 ? k * (n - 1) / (places - 1) : 0;
    // A loss falls steeply at first: a wide bell would start the line far below the first points.
    const double width = std::min(8 + double(at) / 3, widest);
    const size_t reach = size_t(3 * width);
    // The line through the points around, least squares with these weights, at x[at].
    double w = 0, wx = 0, wy = 0, wxx = 0, wxy = 0;
    for (size_t i = at - std::min(at, reach); i < std::min(n, at + reach + 1); ++i) {
      double d = (double(i) - double(at)) / width, weight = std::exp(-d * d / 2), dx = x[i] - x[at];
      w += weight, wx += weight * dx, wy += weight * y[i], wxx += weight * dx * dx, wxy += weight * dx * y[i];
    }
    double determinant = w * wxx - wx * wx;
    out.x.push_back(x[at]);
    out.y.push_back(determinant > 1e-12 * w * wxx ? (wxx * wy - wx * wxy) / determinant : wy / w);
  }
  return out;
}

std::vector<Series> loss_curves(const std::string& name, const Series& train, const Series& validation, int color) {
  std::vector<Series> curves;
  auto add = [&](Series s, const std::string& what, Series::Look look) {
    if (s.x.empty()) return;
    s.in_legend = curves.empty();
    s.name = s.in_legend ? name : name.empty() ? what : name + ", " + what;
    s.color = color, s.look = look;
    curves.push_back(s);
  };
  add(train, "as logged", Series::Look::faint);
  if (train.x.size() > 2) add(smoothed(train), "smoothed", Series::Look::solid);
  add(validation, "validation", Series::Look::dashed);
  return curves;
}

std::vector<double> nice_ticks(const ChartAxis& axis, int count) {
  count = std::max(count, 2);
  if (!(axis.high > axis.low) || !std::isfinite(axis.high - axis.low)) return {};
  if (!axis.log) return linear_ticks(axis.low, axis.high, count);
  int first = int(std::floor(std::log10(axis.low))), last = int(std::ceil(std::log10(axis.high)));
  int stride = std::max(1, (last - first) / count);
  bool between = last - first <= std::max(2, count / 3);
  std::vector<double> ticks;
  for (int e = first; e <= last; e += stride)
    for (double m : {1.0, 2.0, 5.0}) {
      double v = m * std::pow(10, e);
      if ((m == 1 || between) && v >= axis.low * (1 - 1e-9) && v <= axis.high * (1 + 1e-9)) ticks.push_back(v);
    }
  // Below about a factor of two, linear steps read better than powers.
  return ticks.size() >= 2 ? ticks : linear_ticks(axis.low, axis.high, count);
}

static std::string label(double v, int digits) {
  double a = std::abs(v);
  if (a == 0) return "0";
  if (a < 1e-3 || a >= 1e15) return fmt::format("{:.{}g}", v, digits);
  static const std::pair<double, const char*> units[] = {{1e12, "T"}, {1e9, "G"}, {1e6, "M"}, {1e4, "k"}};
  for (auto& [size, unit] : units)
    if (a >= size) return fmt::format("{:.{}g}{}", v / (size == 1e4 ? 1e3 : size), std::max(digits, 3), unit);
  return fmt::format("{:.{}g}", v, std::max(digits, a >= 1000 ? 4 : a >= 100 ? 3 : 2));
}

std::vector<std::string> tick_labels(const std::vector<double>& ticks) {
  double largest = 0;
  for (double t : ticks) largest = std::max(largest, std::abs(t));
  std::vector<std::string> labels;
  for (int digits = 1; digits <= 15; ++digits) {
    labels.clear();
    bool exact = true;
    for (double t : ticks) {
      // Snaps 0.1 + 0.2 - 0.3 to zero.
      double clean = std::abs(t) < 1e-12 * largest ? 0 : t;
      labels.push_back(label(clean, digits));
      exact = exact && std::abs(std::stod(fmt::format("{:.{}g}", clean, digits)) - clean) <= 1e-9 * std::abs(clean);
    }
    std::set<std::string> different(labels.begin(), labels.end());
    if (different.size() == labels.size() && (exact || digits >= 4)) break;
  }
  return labels;
}

}  // namespace crest
