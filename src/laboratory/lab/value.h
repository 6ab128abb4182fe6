// The value of an expression: a number with its uncertainty, a string, or a truth value, possibly
// inconclusive.
#pragma once
#include <string>

namespace crest::lab {

enum class Truth { no, yes, cannot_tell };

// For printing. Arithmetic keeps a unit while it stays true: bytes / parameters are bytes, bytes /
// bytes is a number.
enum class Unit { number, ms, bytes, flops, per_second };

struct Value {
  enum class Type { number, text, truth };
  Type type = Type::number;
  double x = 0, low = 0, high = 0;  // the true number is in [low, high]; both equal x if exact
  bool printed = false;             // the interval is the rounding of a printed figure
  Unit unit = Unit::number;
  std::string text;
  Truth truth = Truth::cannot_tell;
  std::string unknown;  // why there is no value; "": there is one

  static Value number(double x) { return range(x, x, x); }
  static Value range(double x, double low, double high);
  static Value of_text(std::string text);
  static Value yes_no(bool yes);
  // No value, or an inconclusive truth value.
  static Value missing(std::string why, Type type = Type::number);

  bool known() const { return unknown.empty(); }
  bool exact() const { return low == x && high == x; }
  Value in(Unit u) const;  // the same number, counted in another unit
};

// "2.31 ms [2.25 .. 2.38]", "14.51 GB", "bf16", "yes", "inconclusive: WHY", "unknown: WHY".
std::string describe(const Value& value);
// The parts of a number for people, all in one unit. The unit starts with a blank, or is empty.
struct NumberText {
  std::string x, low, high, unit;
};
NumberText number_text(const Value& number);
// "50304", "0.913", "124.4 million".
std::string describe_number(double x);
const char* name(Unit unit);               // of JSON
Unit unit_named(const std::string& name);  // Unit::number for an unknown name

// Interval arithmetic. An unknown operand makes the result unknown. op: + - * / ^
Value calculate(char op, const Value& a, const Value& b);
// "<" "<=" ">" ">=" "==" "!=": inconclusive if the intervals allow both answers.
Value compare(const std::string& op, const Value& a, const Value& b);
Value both(const Value& a, const Value& b);    // and
Value either(const Value& a, const Value& b);  // or
Value negate(const Value& a);                  // not
// |a / b - 1| <= tolerance
Value close_to(const Value& a, const Value& b, const Value& tolerance);
// A figure from a document, rounded to its step: the true number is within half a step.
Value printed(const Value& x, const Value& step);
// Whether a is printed as x in such steps. Rounding of a's own figures counts in the document's
// favor: only an unreachable number is a contradiction.
Value printed_as(const Value& a, const Value& x, const Value& step);

}  // namespace crest::lab
