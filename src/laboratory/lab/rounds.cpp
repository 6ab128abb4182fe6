#include "lab/rounds.h"

#include <algorithm>
#include <cmath>

#include "stats/ratio.h"

namespace crest::lab {

namespace {

bool positive(const Value& v) {
  return v.known() && v.type == Value::Type::number && v.low > 0 && std::isfinite(v.high);
}

// Computed in logarithms, so the rate of a mean time is the mean of the rates.
Value mean_of_rounds(const Value& a, const Value& b) {
  double x = std::sqrt(a.x * b.x);
  double below = std::hypot(std::log(a.x / a.low), std::log(b.x / b.low)) / 2;
  double above = std::hypot(std::log(a.high / a.x), std::log(b.high / b.x)) / 2;
  return Value::range(x, std::min({x * std::exp(-below), a.x, b.x}), std::max({x * std::exp(above), a.x, b.x}));
}

Value together(const std::string& column, const Value& a, const Value& b) {
  if (column == "samples") return calculate('+', a, b);
  if (column == "ms_min") return Value::number(std::min(a.x, b.x));
  // The first measurement of a process also sees memory of its predecessors.
  if (column.starts_with("tuning_") || column.starts_with("capture_")) return Value::number(std::min(a.x, b.x));
  if (column == "ms_max" || column.ends_with("_bytes")) return Value::number(std::max(a.x, b.x));
  if (column == "ms_std") return Value::number(std::hypot(a.x, b.x) / std::sqrt(2.0));
  if (a.exact() && b.exact() && a.x == b.x) return a;
  return positive(a) && positive(b) ? mean_of_rounds(a, b) : a;
}

}  // namespace

Row combine_rounds(const Row& first, const Row& second) {
  Row row = first;
  row.again = second.run;
  for (auto& [column, value] : row.columns) {
    auto other = second.columns.find(column);
    if (other == second.columns.end() || !value.known() || !other->second.known()) continue;
    if (value.type == Value::Type::number && other->second.type == Value::Type::number)
      value = together(column, value, other->second);
  }
  row.round_ms = {first.columns.at("ms").x, second.columns.at("ms").x};
  return row;
}

std::optional<RoundNoise> noise_of_rounds(const std::vector<Row>& rows) {
  std::vector<std::pair<double, double>> rounds;
  for (auto& row : rows)
    if (row.round_ms.size() == 2 && row.round_ms[0] > 0 && row.round_ms[1] > 0)
      rounds.emplace_back(row.round_ms[0], row.round_ms[1]);
  double floor = floor_of_rounds(rounds);
  return floor < 0 ? std::nullopt : std::optional(RoundNoise{floor, rounds.size()});
}

}  // namespace crest::lab
