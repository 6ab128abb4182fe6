#include "lab/value.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace crest::lab {

Value Value::range(double x, double low, double high) {
  Value v;
  v.x = x, v.low = low, v.high = high;
  if (std::isnan(x) || std::isnan(low) || std::isnan(high)) v.unknown = "not a number";
  return v;
}

Value Value::of_text(std::string text) {
  Value v;
  v.type = Type::text, v.text = std::move(text);
  return v;
}

Value Value::yes_no(bool yes) {
  Value v;
  v.type = Type::truth, v.truth = yes ? Truth::yes : Truth::no;
  return v;
}

Value Value::missing(std::string why, Type type) {
  Value v;
  v.type = type, v.unknown = std::move(why);
  return v;
}

Value Value::in(Unit u) const {
  Value v = *this;
  v.unit = u;
  return v;
}

namespace {

struct UnitName {
  Unit unit;
  const char* name;
};
constexpr UnitName unit_names[] = {{Unit::number, ""},
                                   {Unit::ms, "ms"},
                                   {Unit::bytes, "bytes"},
                                   {Unit::flops, "flops"},
                                   {Unit::per_second, "per_second"}};

// The factor and the word behind a number of this size: 14.5e9 bytes are 14.5 GB.
struct Scaled {
  double factor = 1;
  std::string word;
};
Scaled scale_of(double x, Unit unit) {
  if (!std::isfinite(x)) return {};
  int thousands = 0;
  for (double rest = std::abs(x); rest >= 999.95 && thousands < 5; rest /= 1000) ++thousands;
  static const char* const prefixes[] = {"", "k", "M", "G", "T", "P"};
  static const char* const words[] = {"", "", " million", " billion", " trillion", ""};
  double factor = std::pow(1e3, thousands);
  switch (unit) {
    case Unit::ms: return {1, " ms"};
    case Unit::per_second: return {1, " tokens/s"};
    case Unit::bytes: return {factor, std::string(" ") + prefixes[thousands] + "B"};
    case Unit::flops: return {factor, std::string(" ") + prefixes[thousands] + "FLOP"};
    case Unit::number: break;
  }
  return thousands >= 2 && thousands <= 4 ? Scaled{factor, words[thousands]} : Scaled{};
}

std::string without_zeros(std::string text) {
  if (text.find('.') == std::string::npos || text.find('e') != std::string::npos) return text;
  text.erase(text.find_last_not_of('0') + 1);
  if (text.back() == '.') text.pop_back();
  return text;
}

// Exact numbers have four decimals, as documents print them (10.0001), unless these look like
// another number (1.00004, 0.00002).
std::string digits(double x, bool exact) {
  if (std::isfinite(x) && x == std::round(x) && std::abs(x) < 1e6) return fmt::format("{:.0f}", x);
  if (!exact && std::abs(x) >= 1e3 && std::abs(x) < 1e9) return fmt::format("{:.0f}", x);
  const double near = std::round(x * 1e4) / 1e4;
  if (exact && std::abs(x) >= 1e-3 && std::abs(x) < 100 && near != std::round(near))
    return without_zeros(fmt::format("{:.4f}", x));
  return exact ? fmt::format("{:.6g}", x) : fmt::format("{:.4g}", x);
}

}  // namespace

const char* name(Unit unit) {
  for (auto& u : unit_names)
    if (u.unit == unit) return u.name;
  return "";
}

Unit unit_named(const std::string& name) {
  for (auto& u : unit_names)
    if (name == u.name) return u.unit;
  return Unit::number;
}

std::string describe_number(double x) { return describe(Value::number(x)); }

NumberText number_text(const Value& v) {
  Scaled s = scale_of(v.x, v.unit);
  bool whole = v.exact() && v.unit == Unit::number && s.factor == 1;
  return {digits(v.x / s.factor, whole), digits(v.low / s.factor, false), digits(v.high / s.factor, false), s.word};
}

std::string describe(const Value& v) {
  if (!v.known()) return (v.type == Value::Type::truth ? "inconclusive: " : "unknown: ") + v.unknown;
  if (v.type == Value::Type::text) return v.text;
  if (v.type == Value::Type::truth) return v.truth == Truth::yes ? "yes" : "no";
  NumberText t = number_text(v);
  return v.exact() ? t.x + t.unit : fmt::format("{}{} [{} .. {}]", t.x, t.unit, t.low, t.high);
}

static Value from_corners(double x, const Value& a, const Value& b, double (*f)(double, double)) {
  double corners[] = {f(a.low, b.low), f(a.low, b.high), f(a.high, b.low), f(a.high, b.high)};
  auto [low, high] = std::minmax_element(std::begin(corners), std::end(corners));
  return Value::range(x, std::min(x, *low), std::max(x, *high));
}

static Value arithmetic(char op, const Value& a, const Value& b) {
  for (auto* v : {&a, &b})
    if (!v->known()) return Value::missing(v->unknown);
  switch (op) {
    case '+': return Value::range(a.x + b.x, a.low + b.low, a.high + b.high);
    case '-': return Value::range(a.x - b.x, a.low - b.high, a.high - b.low);
    case '*': return from_corners(a.x * b.x, a, b, [](double p, double q) { return p * q; });
    case '/':
      if (b.low <= 0 && b.high >= 0) return Value::missing("divided by a value that may be 0");
      return from_corners(a.x / b.x, a, b, [](double p, double q) { return p / q; });
    default: return from_corners(std::pow(a.x, b.x), a, b, [](double p, double q) { return std::pow(p, q); });
  }
}

// A plain number scales a unit; two different units have no name.
static Unit resulting_unit(char op, Unit a, Unit b) {
  if (op == '^') return Unit::number;
  if (b == Unit::number && op == '/') return a;
  if (op == '/') return Unit::number;
  if (a == Unit::number || b == Unit::number) return a == Unit::number ? b : a;
  return a == b && op != '*' ? a : Unit::number;
}

Value calculate(char op, const Value& a, const Value& b) {
  Value v = arithmetic(op, a, b);
  v.printed = a.printed || b.printed;
  v.unit = resulting_unit(op, a.unit, b.unit);
  return v;
}

static Value cannot_tell(std::string why) { return Value::missing(std::move(why), Value::Type::truth); }

// yes: true for every pair of numbers in the intervals; no: true for none.
static Value answer(bool yes, bool no, const Value& a, const Value& b) {
  if (yes || no) return Value::yes_no(yes);
  Unit unit = a.unit == Unit::number ? b.unit : a.unit;
  return cannot_tell(fmt::format("the difference is within {}: {} against {}",
                                 a.printed || b.printed ? "the rounding of printed figures" : "noise",
                                 describe(a.in(unit)), describe(b.in(unit))));
}

Value compare(const std::string& op, const Value& a, const Value& b) {
  for (auto* v : {&a, &b})
    if (!v->known()) return cannot_tell(v->unknown);
  if (op == "!=") return negate(compare("==", a, b));
  if (a.type == Value::Type::text) return Value::yes_no(a.text == b.text);
  if (op == "==") return answer(a.exact() && b.exact() && a.x == b.x, a.high < b.low || b.high < a.low, a, b);
  if (op == "<") return answer(a.high < b.low, a.low >= b.high, a, b);
  if (op == "<=") return answer(a.high <= b.low, a.low > b.high, a, b);
  return op == ">" ? compare("<", b, a) : compare("<=", b, a);
}

static bool is(const Value& v, Truth truth) { return v.known() && v.truth == truth; }

Value both(const Value& a, const Value& b) {
  if (is(a, Truth::no) || is(b, Truth::no)) return Value::yes_no(false);
  return !a.known() ? a : b;
}

Value either(const Value& a, const Value& b) {
  if (is(a, Truth::yes) || is(b, Truth::yes)) return Value::yes_no(true);
  return !a.known() ? a : b;
}

Value negate(const Value& a) { return a.known() ? Value::yes_no(a.truth == Truth::no) : a; }

Value close_to(const Value& a, const Value& b, const Value& tolerance) {
  Value ratio = calculate('/', a, b);
  Value high = calculate('+', Value::number(1), tolerance), low = calculate('-', Value::number(1), tolerance);
  return both(compare("<=", ratio, high), compare(">=", ratio, low));
}

Value printed(const Value& x, const Value& step) {
  Value half = calculate('/', step, Value::number(2));
  Value v = Value::range(x.x, x.low - half.high, x.high + half.high).in(x.unit);
  v.printed = true;
  return v;
}

Value printed_as(const Value& a, const Value& x, const Value& step) {
  for (auto* v : {&a, &x, &step})
    if (!v->known()) return cannot_tell(v->unknown);
  Value figure = printed(x, step);
  bool inside = a.low >= figure.low && a.high <= figure.high;
  bool outside = a.high < figure.low || a.low > figure.high;
  return answer(inside || (a.printed && !outside), outside, a, figure);
}

}  // namespace crest::lab
