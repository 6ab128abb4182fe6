#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/text.h"
#include "lab/expression.h"
#include "stats/samples.h"

namespace crest::lab {

namespace {

using ExpressionKind = Expression::Kind;

const Function* find_function(const std::string& name) {
  for (auto& f : functions())
    if (name == f.name) return &f;
  return nullptr;
}

size_t arguments_of(const Expression& call, const Function* f) {
  if (!f || f->takes == Function::Takes::column) return 1;
  if (f->takes == Function::Takes::columns_and_number) return 3;
  return f->takes == Function::Takes::two_columns ? 2 : size_t(f->values);
  (void)call;
}

bool reads_rows(const Function* f) { return !f || f->takes != Function::Takes::values; }

void check_filters(const Expression& e, const Vocabulary& v) {
  for (auto& f : e.filters)
    if (!v.keys.count(f.key))
      throw ExpressionError{fmt::format("'{}' is not a key of the table", f.key),
                            did_you_mean(f.key, {v.keys.begin(), v.keys.end()}) +
                                " Keys: " + join({v.keys.begin(), v.keys.end()}, ", ") + ".",
                            f.at};
}

void check_column(const Expression& e, const Vocabulary& v) {
  if (e.kind == ExpressionKind::name && (v.columns.count(e.token) || v.keys.count(e.token))) return;
  std::string what =
      e.kind == ExpressionKind::name ? fmt::format("'{}' is not a column of the table", e.token) : "expected a column";
  throw ExpressionError{what,
                        did_you_mean(e.token, {v.columns.begin(), v.columns.end()}) +
                            " Columns: " + join({v.columns.begin(), v.columns.end()}, ", ") + ".",
                        e.at};
}

void check_call(const Expression& e, const Vocabulary& v) {
  const Function* f = find_function(e.token);
  if (!f && e.token != "ratio") {
    std::vector<std::string> known = {"ratio"};
    for (auto& each : functions()) known.emplace_back(each.name);
    throw ExpressionError{fmt::format("unknown function '{}'", e.token),
                          did_you_mean(e.token, known) + " Functions: " + join(known, ", ") + ".", e.at};
  }
  size_t wanted = arguments_of(e, f);
  if (e.inner.size() != wanted)
    throw ExpressionError{
        fmt::format("{} takes {} argument{}, not {}", e.token, wanted, wanted == 1 ? "" : "s", e.inner.size()),
        f ? f->help : "(column, key=NUMERATOR, key=DENOMINATOR, filters of both)", e.at};
  if (reads_rows(f)) {
    const bool level = f && f->takes == Function::Takes::columns_and_number;
    for (size_t i = 0; i < e.inner.size(); ++i)
      if (level && i == 2)
        check_names(e.inner[i], v);
      else
        check_column(e.inner[i], v);
    check_filters(e, v);
  } else {
    if (!e.filters.empty())
      throw ExpressionError{e.token + " reads no table, so it takes no key=value", "Compare with ==.", e.filters[0].at};
    for (auto& inner : e.inner) check_names(inner, v);
  }
}

// "nothing was measured with variant=naive, batch=16", if no row matches.
Value with_filters(const Value& v, const std::vector<Filter>& filters) {
  if (v.unknown != no_row || filters.empty()) return v;
  std::vector<std::string> parts;
  for (auto& f : filters) parts.push_back(f.key + "=" + f.pattern);
  return Value::missing(v.unknown + " with " + join(parts, ", "), v.type);
}

std::vector<const Row*> rows_of(const Table& table, const std::vector<Filter>& filters) {
  std::vector<const Row*> rows;
  for (auto& row : table.rows)
    if (matches(row, filters)) rows.push_back(&row);
  return rows;
}

// Rows that differ only in their seed: their mean, and the sum of squared relative deviations from
// it.
struct Repetitions {
  double mean = 0, squares = 0;
  int64_t n = 0;  // 0: they differ in more, or there are fewer than two
};
Repetitions repetitions(const std::vector<const Row*>& rows, const std::string& column) {
  Repetitions r;
  auto keys = [](const Row* row) {
    auto others = row->keys;
    others.erase("seed");
    return others;
  };
  for (auto* row : rows) {
    Value v = column_of(*row, column);
    if (rows.size() < 2 || !v.known() || v.type != Value::Type::number || keys(row) != keys(rows[0])) return {};
    r.mean += v.x / double(rows.size());
  }
  for (auto* row : rows) r.squares += std::pow(column_of(*row, column).x / r.mean - 1, 2);
  r.n = int64_t(rows.size());
  return r;
}

// The ratio of the means of two sets of repetitions, with a 95% interval by Student's t. Both sets
// share one relative spread (pooled), with the degrees of freedom of both together.
Value ratio_of_means(const std::vector<const Row*>& a, const std::vector<const Row*>& b, const std::string& column) {
  Repetitions x = repetitions(a, column), y = repetitions(b, column);
  if (x.n == 0 || y.n == 0 || x.mean == 0 || y.mean == 0) return Value::missing("no repetitions");
  int64_t freedom = x.n + y.n - 2;
  double deviation = std::sqrt((x.squares + y.squares) / double(freedom) * (1 / double(x.n) + 1 / double(y.n)));
  double ratio = x.mean / y.mean, half = std::abs(ratio) * student_t_975(freedom) * deviation;
  return Value::range(ratio, ratio - half, ratio + half);
}

class Evaluator {
 public:
  Evaluator(std::string_view text, const Scope& scope) : text_(text), scope_(scope) {}

  Value operator()(const Expression& e) const {
    switch (e.kind) {
      case ExpressionKind::number: return Value::number(e.number).in(e.unit);
      case ExpressionKind::text: return Value::of_text(e.token);
      case ExpressionKind::name: return tell(e.token, scope_.name(e.token));
      case ExpressionKind::call: return call(e);
      case ExpressionKind::unary: return unary(e);
      case ExpressionKind::binary: return binary(e);
    }
    return {};
  }

 private:
  Value unary(const Expression& e) const {
    Value v = (*this)(e.inner[0]);
    if (e.token == "not") return negate(truth(v, e));
    return calculate('-', Value::number(0), number(v, e));
  }

  Value binary(const Expression& e) const {
    Value a = (*this)(e.inner[0]), b = (*this)(e.inner[1]);
    if (e.token == "and") return both(truth(a, e), truth(b, e));
    if (e.token == "or") return either(truth(a, e), truth(b, e));
    bool compares = e.token == "==" || e.token == "!=" || e.token[0] == '<' || e.token[0] == '>';
    if (!compares) return calculate(e.token[0], number(a, e), number(b, e));
    bool texts = a.type == Value::Type::text && b.type == Value::Type::text;
    if (texts && (e.token == "==" || e.token == "!=")) return compare(e.token, a, b);
    // A missing string column has no type.
    if (!a.known() || !b.known()) return Value::missing(a.known() ? b.unknown : a.unknown, Value::Type::truth);
    return compare(e.token, number(a, e), number(b, e));
  }

  Value call(const Expression& e) const {
    const Function* f = find_function(e.token);
    if (!f) return tell(source(e), ratio(e));
    if (f->takes == Function::Takes::columns_and_number) return tell(source(e), to_level(*f, e));
    if (reads_rows(f)) {
      std::string second = e.inner.size() > 1 ? e.inner[1].token : "";
      Value v = f->over_rows(rows_of(*scope_.table, e.filters), e.inner[0].token, second);
      return tell(source(e), with_filters(v, e.filters));
    }
    std::vector<Value> values;
    for (auto& inner : e.inner) {
      values.push_back((*this)(inner));
      if (!values.back().known()) return values.back();
    }
    try {
      return f->over_values(values);
    } catch (ExpressionError& error) {
      error.at = e.at;
      throw;
    }
  }

  Value to_level(const Function& f, const Expression& e) const {
    const Value level = number((*this)(e.inner[2]), e);
    if (!level.known()) return level;
    return f.to_level(rows_of(*scope_.table, e.filters), e.inner[0].token, e.inner[1].token, level.x);
  }

  // A key given twice selects numerator, then denominator. A key given once selects both.
  Value ratio(const Expression& e) const {
    std::vector<Filter> upper, lower;
    for (auto& f : e.filters) {
      bool again = std::any_of(upper.begin(), upper.end(), [&](auto& u) { return u.key == f.key; });
      if (!again) upper.push_back(f);
      std::erase_if(lower, [&](auto& l) { return l.key == f.key; });
      lower.push_back(f);
    }
    auto a = rows_of(*scope_.table, upper), b = rows_of(*scope_.table, lower);
    const std::string& column = e.inner[0].token;
    if (Value of_means = ratio_of_means(a, b, column); of_means.known()) return of_means;
    const Function* one = find_function("value");
    auto side = [&](auto& rows, auto& filters) {
      return number(with_filters(one->over_rows(rows, column, ""), filters), e);
    };
    return calculate('/', side(a, upper), side(b, lower));
  }

  Value number(const Value& v, const Expression& e) const {
    if (v.known() && v.type != Value::Type::number) wrong_type("a number", v, e);
    return v;
  }
  Value truth(const Value& v, const Expression& e) const {
    if (v.known() && v.type != Value::Type::truth) wrong_type("a comparison", v, e);
    return v;
  }
  [[noreturn]] void wrong_type(const char* wanted, const Value& v, const Expression& e) const {
    throw ExpressionError{fmt::format("'{}' needs {}, not '{}'", e.token, wanted, printable(describe(v))),
                          "Compare strings with == and numbers with <, <=, >, >=, ==.", e.at};
  }

  std::string source(const Expression& e) const { return std::string(text_.substr(e.at, e.end - e.at)); }
  Value tell(const std::string& what, Value v) const {
    if (scope_.observe) scope_.observe(what, v);
    return v;
  }

  std::string_view text_;
  const Scope& scope_;
};

}  // namespace

void check_names(const Expression& e, const Vocabulary& v) {
  if (e.kind == Expression::Kind::call) return check_call(e, v);
  if (e.kind == Expression::Kind::name && !v.names.count(e.token)) {
    bool column = v.columns.count(e.token) > 0;
    throw ExpressionError{fmt::format("'{}' is not a quantity", e.token),
                          column
                              ? fmt::format("It is a column: write value({}, key=...), max({}), ..", e.token, e.token)
                              : did_you_mean(e.token, {v.names.begin(), v.names.end()}) +
                                    " Strings need quotes; define quantities in [quantities].",
                          e.at};
  }
  for (auto& inner : e.inner) check_names(inner, v);
}

void collect_columns(const Expression& e, std::set<std::string>& columns) {
  if (e.kind == Expression::Kind::name) columns.insert(e.token);
  for (auto& inner : e.inner) collect_columns(inner, columns);
}

Value evaluate(const Expression& e, std::string_view text, const Scope& scope) { return Evaluator(text, scope)(e); }

}  // namespace crest::lab
