// The functions of the language, one row each in the table below, except ratio
// (expression_eval.cpp).
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>

#include "core/dtype.h"
#include "core/error.h"
#include "core/text.h"
#include "lab/curve.h"
#include "lab/expression.h"
#include "model/parameters.h"

namespace crest::lab {

namespace {

using RowList = std::vector<const Row*>;
using Values = std::vector<Value>;

// The numbers of a column. If no row has a number, `missing` gets the reason.
Values numbers(const RowList& rows, const std::string& column, std::string& missing) {
  Values list;
  for (auto* row : rows) {
    Value v = column_of(*row, column);
    if (v.known() && v.type == Value::Type::number)
      list.push_back(v);
    else if (missing.empty())
      missing = v.known() ? column + " is a string" : v.unknown;
  }
  if (missing.empty()) missing = no_row;
  return list;
}

Value fold(const RowList& rows, const std::string& column,
           const std::function<Value(const Value&, const Value&)>& join) {
  std::string missing;
  Values list = numbers(rows, column, missing);
  if (list.empty()) return Value::missing(missing);
  Value sum = list[0];
  for (size_t i = 1; i < list.size(); ++i) sum = join(sum, list[i]);
  return sum;
}

// The number common to all rows, or their distinct strings joined by bars.
Value value(const RowList& rows, const std::string& column, const std::string&) {
  if (rows.empty()) return Value::missing(no_row);
  Value first = column_of(*rows[0], column);
  std::vector<std::string> texts;
  for (auto* row : rows) {
    Value v = column_of(*row, column);
    if (!v.known()) return v;
    if (v.type != first.type || (v.type == Value::Type::number && v.x != first.x))
      return Value::missing(
          fmt::format("{} rows match and differ: filter by more keys, or use mean, min or max", rows.size()));
    if (v.type == Value::Type::text && std::find(texts.begin(), texts.end(), v.text) == texts.end())
      texts.push_back(v.text);
  }
  return first.type == Value::Type::text ? Value::of_text(join(texts, "|")) : first;
}

// A number computed from others is a printed figure if they are.
Value computed(double x, double low, double high, const Value& a, const Value& b) {
  Value v = Value::range(x, low, high).in(a.unit == Unit::number ? b.unit : a.unit);
  v.printed = a.printed || b.printed;
  return v;
}
Value larger(const Value& a, const Value& b) {
  return computed(std::max(a.x, b.x), std::max(a.low, b.low), std::max(a.high, b.high), a, b);
}
Value smaller(const Value& a, const Value& b) {
  return computed(std::min(a.x, b.x), std::min(a.low, b.low), std::min(a.high, b.high), a, b);
}

Value max(const RowList& rows, const std::string& column, const std::string&) { return fold(rows, column, larger); }
Value min(const RowList& rows, const std::string& column, const std::string&) { return fold(rows, column, smaller); }
Value spread(const RowList& rows, const std::string& column, const std::string& none) {
  return calculate('-', calculate('/', max(rows, column, none), min(rows, column, none)), Value::number(1));
}

// The sum over no rows is 0: an absent kernel took no time.
Value sum(const RowList& rows, const std::string& column, const std::string&) {
  Value total = Value::number(0);
  for (auto* row : rows) {
    if (!row->columns.count(column)) continue;
    total = calculate('+', total, column_of(*row, column));
  }
  for (auto* row : rows)
    if (!row->absent.empty()) return Value::missing(row->absent);
  return total;
}

Value count(const RowList& rows, const std::string& column, const std::string&) {
  return Value::number(double(std::count_if(rows.begin(), rows.end(), [&](auto* r) {
    Value v = column_of(*r, column);
    return v.known();
  })));
}

Value mean(const RowList& rows, const std::string& column, const std::string&) {
  std::string missing;
  Values list = numbers(rows, column, missing);
  if (list.empty()) return Value::missing(missing);
  return calculate('/', fold(rows, column, [](auto& a, auto& b) { return calculate('+', a, b); }),
                   Value::number(double(list.size())));
}

// Least squares of y = a + b x over rows with both values (x exact). The y of a row may be anywhere
// in its interval, and so may the line.
struct Line {
  Value slope, intercept, r2;
  std::string missing;
};

// A sum of y_i * weight_i for all y in their intervals.
Value weighted(const Values& y, const std::vector<double>& weights) {
  Value sum = Value::number(0).in(y[0].unit);
  for (size_t i = 0; i < y.size(); ++i) sum = calculate('+', sum, calculate('*', y[i], Value::number(weights[i])));
  return sum;
}

// R^2 = |fit|^2 / (|fit|^2 + |rest|^2). Fit and rest are projections of y, so neither moves by more
// than y does.
Value determination(double fit, double rest, double moves) {
  auto r2 = [](double f, double r) { return f == 0 && r == 0 ? 1 : f * f / (f * f + r * r); };
  double least = std::max(0.0, fit - moves), closest = std::max(0.0, rest - moves);
  return Value::range(r2(fit, rest), moves == 0 ? r2(fit, rest) : r2(least, rest + moves), r2(fit + moves, closest));
}

Line line_through(const RowList& rows, const std::string& y_column, const std::string& x_column) {
  std::vector<double> x;
  Values y;
  Line line;
  for (auto* row : rows) {
    Value at = column_of(*row, x_column), v = column_of(*row, y_column);
    if (at.known() && v.known() && at.type == Value::Type::number && v.type == Value::Type::number)
      x.push_back(at.x), y.push_back(v);
    else
      line.missing = !v.known() ? v.unknown : !at.known() ? at.unknown : x_column + " is a string";
  }
  const size_t n = x.size();
  double mean_x = 0, xx = 0;
  for (double at : x) mean_x += at / double(n);
  for (double at : x) xx += (at - mean_x) * (at - mean_x);
  if (n < 2 || xx == 0) {
    if (line.missing.empty()) line.missing = "a line needs two rows that differ in " + x_column;
    return line;
  }
  line.missing.clear();
  std::vector<double> slope, intercept;
  for (double at : x) {
    slope.push_back((at - mean_x) / xx);
    intercept.push_back(1 / double(n) - mean_x * slope.back());
  }
  line.slope = weighted(y, slope).in(Unit::number), line.intercept = weighted(y, intercept);
  double rest = 0, moves = 0;
  for (size_t i = 0; i < n; ++i) {
    rest += std::pow(y[i].x - line.intercept.x - line.slope.x * x[i], 2);
    moves += std::pow(std::max(y[i].high - y[i].x, y[i].x - y[i].low), 2);
  }
  line.r2 = determination(std::abs(line.slope.x) * std::sqrt(xx), std::sqrt(rest), std::sqrt(moves));
  return line;
}
Value of_line(const Line& line, Value Line::*figure) {
  return line.missing.empty() ? line.*figure : Value::missing(line.missing);
}
Value slope(const RowList& r, const std::string& y, const std::string& x) {
  return of_line(line_through(r, y, x), &Line::slope);
}
Value intercept(const RowList& r, const std::string& y, const std::string& x) {
  return of_line(line_through(r, y, x), &Line::intercept);
}
Value linearity(const RowList& r, const std::string& y, const std::string& x) {
  return of_line(line_through(r, y, x), &Line::r2);
}

// The key of the extreme row. If noise leaves several rows, it is the range of their keys, or
// missing if these are texts.
Value key_at(const RowList& rows, const std::string& column, const std::string& key, bool largest) {
  std::vector<std::pair<const Row*, Value>> known;
  std::string missing = no_row;
  for (auto* row : rows) {
    Value v = column_of(*row, column);
    if (v.known() && v.type == Value::Type::number)
      known.emplace_back(row, largest ? v : calculate('-', Value::number(0), v));
    else if (!v.known())
      missing = v.unknown;
  }
  if (known.empty()) return Value::missing(missing);
  auto& [best, most] =
      *std::max_element(known.begin(), known.end(), [](auto& a, auto& b) { return a.second.x < b.second.x; });
  Value found = column_of(*best, key);
  for (auto& [row, v] : known) {
    Value other = column_of(*row, key);
    if (row == best || v.high < most.low || !other.known() || !found.known()) continue;
    if (other.type == Value::Type::number && found.type == Value::Type::number)
      found = Value::range(found.x, std::min(found.low, other.x), std::max(found.high, other.x));
    else if (other.type != found.type || other.text != found.text)
      return Value::missing(fmt::format("noise does not tell {} {} from {}", key, describe(found), describe(other)),
                            Value::Type::text);
  }
  return found;
}

// The key with the largest sum of a column over its rows, and these rows.
struct Top {
  std::string key;
  RowList rows;
  Value share;  // of the sum of all rows
  std::string missing = no_row;
};
Top top_of(const RowList& rows, const std::string& column, const std::string& key) {
  std::map<std::string, std::pair<Value, RowList>> sums;
  Value all = Value::number(0);
  Top top;
  for (auto* row : rows) {
    if (!row->absent.empty()) top.missing = row->absent;
    auto x = row->columns.find(column);
    auto name = row->keys.find(key);
    if (x == row->columns.end() || name == row->keys.end()) continue;
    auto& [sum, of_key] = sums.try_emplace(name->second, Value::number(0), RowList()).first->second;
    sum = calculate('+', sum, x->second), all = calculate('+', all, x->second);
    of_key.push_back(row);
  }
  const Value* largest = nullptr;
  for (auto& [name, entry] : sums)
    if (!largest || entry.first.x > largest->x) largest = &entry.first, top.key = name, top.rows = entry.second;
  if (largest) top.share = calculate('/', *largest, all), top.missing.clear();
  for (auto& [name, entry] : sums)
    if (name != top.key && !(largest->exact() && entry.first.exact()) && entry.first.high >= largest->low)
      top.missing = fmt::format("noise does not tell {} {} from {}", key, top.key, name);
  return top;
}
Value top(const RowList& r, const std::string& column, const std::string& key) {
  Top t = top_of(r, column, key);
  return t.missing.empty() ? Value::of_text(t.key) : Value::missing(t.missing, Value::Type::text);
}
Value top_share(const RowList& r, const std::string& column, const std::string& key) {
  Top t = top_of(r, column, key);
  return t.missing.empty() ? t.share : Value::missing(t.missing);
}
Value top_launches(const RowList& r, const std::string& column, const std::string& key) {
  Top t = top_of(r, column, key);
  return t.missing.empty() ? sum(t.rows, "kernel_launches", "") : Value::missing(t.missing);
}

Value where_max(const RowList& r, const std::string& column, const std::string& key) {
  return key_at(r, column, key, true);
}
Value where_min(const RowList& r, const std::string& column, const std::string& key) {
  return key_at(r, column, key, false);
}

[[noreturn]] void refuse(const std::string& what, const std::string& advice) { throw ExpressionError{what, advice, 0}; }

double exact(const Value& v, const char* function) {
  if (v.type != Value::Type::number) refuse(fmt::format("{} takes numbers", function), "Strings need quotes.");
  return v.x;
}
const std::string& text(const Value& v, const char* function) {
  if (v.type != Value::Type::text) refuse(fmt::format("{} takes a string", function), "Put it in quotes.");
  return v.text;
}

// f is monotone, so the ends of an interval stay its ends.
template <class F>
Value map_monotone(const Value& v, F f) {
  return computed(f(v.x), f(v.low), f(v.high), v, v);
}
Value absolute(const Values& a) {
  const Value& v = a[0];
  if (v.low >= 0) return v;
  if (v.high <= 0) return calculate('-', Value::number(0), v);
  return computed(std::abs(v.x), 0, std::max(-v.low, v.high), v, v);
}
Value round_up(const Values& a) {
  double step = exact(a[1], "round_up");
  if (!(step > 0)) return Value::missing("round_up needs a step above 0");
  exact(a[0], "round_up");
  return map_monotone(a[0], [step](double x) { return std::ceil(x / step) * step; });
}
Value remainder(const Values& a) {
  double by = exact(a[1], "remainder");
  if (by == 0) return Value::missing("divided by 0");
  exact(a[0], "remainder");
  const Value& v = a[0];
  if (std::trunc(v.low / by) == std::trunc(v.high / by))
    return map_monotone(v, [by](double x) { return std::fmod(x, by); });
  double most = std::abs(by);
  return computed(std::fmod(v.x, by), v.low < 0 ? -most : 0, v.high > 0 ? most : 0, v, v);
}
// Rounds to a number of decimal places, as printf does.
Value rounded(const Values& a) {
  int places = int(std::clamp(exact(a[1], "rounded"), 0.0, 15.0));
  exact(a[0], "rounded");
  return map_monotone(a[0], [places](double x) { return std::stod(fmt::format("{:.{}f}", x, places)); });
}

const ModelConfig model_of(const Value& v, const char* function) {
  const std::string& name = text(v, function);
  auto& known = preset_names();
  if (std::find(known.begin(), known.end(), name) == known.end())
    refuse(fmt::format("unknown preset '{}'", printable(name)), did_you_mean(name, known));
  return load_model_config(name);
}
Value parameters(const Values& a) { return Value::number(double(parameter_count(model_of(a[0], "parameters")))); }
Value matmul_parameters(const Values& a) {
  return Value::number(double(matmul_parameter_count(model_of(a[0], "matmul_parameters"))));
}
// Per trained token.
Value palm_flops(const Values& a) {
  return Value::number(flops_per_token(model_of(a[0], "palm_flops"), int64_t(exact(a[1], "palm_flops"))));
}

double stored(double x, const std::string& type) {
  if (type == "fp32") return double(float(x));
  if (type == "fp16") return double(to_float(to_float16(float(x))));
  if (type == "bf16") return double(to_float(to_bfloat16(float(x))));
  if (type == "fp64") return x;
  refuse(fmt::format("unknown type '{}'", printable(type)),
         did_you_mean(type, {"fp64", "fp32", "fp16", "bf16"}) + " Types: fp64, fp32, fp16, bf16.");
}
// Each term is rounded to its type, and the sum to its own type after every addition, as in a loop
// over tensors.
Value accumulate(const Values& a) {
  double count = exact(a[0], "accumulate");
  if (!(count >= 0 && count <= 1e7)) return Value::missing("accumulate counts from 0 to 10 million");
  const std::string &sum_type = text(a[2], "accumulate"), &term_type = text(a[3], "accumulate");
  double term = stored(exact(a[1], "accumulate"), term_type), sum = stored(0, sum_type);
  for (int64_t i = 0; i < int64_t(count); ++i) sum = stored(sum + term, sum_type);
  return Value::number(sum);
}

// The sum of squares in a norm. Value, square and sum are each rounded to their type.
Value sum_of_squares(const Values& a) {
  double count = exact(a[0], "sum_of_squares");
  if (!(count >= 0 && count <= 1e7)) return Value::missing("sum_of_squares counts from 0 to 10 million");
  const std::string& sum_type = text(a[2], "sum_of_squares");
  double x = stored(exact(a[1], "sum_of_squares"), text(a[3], "sum_of_squares")), square = stored(x * x, sum_type);
  double sum = stored(0, sum_type);
  for (int64_t i = 0; i < int64_t(count); ++i) sum = stored(sum + square, sum_type);
  return Value::number(sum);
}

}  // namespace

const std::vector<Function>& functions() {
  using enum Function::Takes;
  static const std::vector<Function> table = {
      {"value", "the value of the matching rows; distinct strings joined by bars", column, 0, value, nullptr},
      {"max", "largest", column, 0, max, nullptr},
      {"min", "smallest", column, 0, min, nullptr},
      {"mean", "mean", column, 0, mean, nullptr},
      {"sum", "sum; 0 when no row matches", column, 0, sum, nullptr},
      {"count", "number of rows with the column", column, 0, count, nullptr},
      {"spread", "largest over smallest, minus 1", column, 0, spread, nullptr},
      {"slope", "(y, x): of the least-squares line", two_columns, 0, slope, nullptr},
      {"intercept", "(y, x): of the least-squares line", two_columns, 0, intercept, nullptr},
      {"linearity", "(y, x): R^2 of the least-squares line", two_columns, 0, linearity, nullptr},
      {"where_max", "(column, key): the key of the row with the largest value", two_columns, 0, where_max, nullptr},
      {"where_min", "(column, key): the key of the row with the smallest value", two_columns, 0, where_min, nullptr},
      {"top", "(column, key): the key whose rows have the largest sum of the column", two_columns, 0, top, nullptr},
      {"top_share", "(column, key): the part of the column's sum that top's rows have", two_columns, 0, top_share,
       nullptr},
      {"top_launches", "(column, key): how often top's rows are launched", two_columns, 0, top_launches, nullptr},
      {"until", "(y, x, level): the x at which y falls to level", columns_and_number, 0, nullptr, nullptr, until},
      {"close", "(a, b, tolerance): a / b is within 1 +- tolerance", values, 3, nullptr,
       [](const Values& a) { return close_to(a[0], a[1], a[2]); }},
      {"printed", "(x, step): a figure that a document prints in such steps", values, 2, nullptr,
       [](const Values& a) { return printed(a[0], a[1]); }},
      {"printed_as", "(a, x, step): a, printed in such steps, is x", values, 3, nullptr,
       [](const Values& a) { return printed_as(a[0], a[1], a[2]); }},
      {"larger", "(a, b)", values, 2, nullptr, [](const Values& a) { return larger(a[0], a[1]); }},
      {"smaller", "(a, b)", values, 2, nullptr, [](const Values& a) { return smaller(a[0], a[1]); }},
      {"abs", "(a)", values, 1, nullptr, absolute},
      {"sqrt", "(a)", values, 1, nullptr,
       [](const Values& a) { return map_monotone(a[0], [](double x) { return std::sqrt(x); }).in(Unit::number); }},
      {"log2", "(a)", values, 1, nullptr,
       [](const Values& a) { return map_monotone(a[0], [](double x) { return std::log2(x); }).in(Unit::number); }},
      {"floor", "(a)", values, 1, nullptr,
       [](const Values& a) { return map_monotone(a[0], [](double x) { return std::floor(x); }); }},
      {"round_up", "(a, step): the next multiple of step", values, 2, nullptr, round_up},
      {"remainder", "(a, b)", values, 2, nullptr, remainder},
      {"rounded", "(a, digits): to that many decimal places", values, 2, nullptr, rounded},
      {"parameters", "(\"preset\"): of the model", values, 1, nullptr, parameters},
      {"matmul_parameters", "(\"preset\"): those in matrix multiplications", values, 1, nullptr, matmul_parameters},
      {"palm_flops", "(\"preset\", seq): 6N + 12 L d T per trained token", values, 2, nullptr, palm_flops},
      {"accumulate", "(count, term, \"sum's type\", \"term's type\"): a sum that rounds after every addition", values,
       4, nullptr, accumulate},
      {"sum_of_squares", "(count, x, \"sum's type\", \"x's type\"): squares and sum are rounded to the sum's type",
       values, 4, nullptr, sum_of_squares},
  };
  return table;
}

}  // namespace crest::lab
