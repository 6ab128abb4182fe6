// The language of claims, columns and quantities (docs/reference/lab.md): arithmetic, comparisons,
// and functions over a table, for example  ratio(ms, precision=fp32, precision=bf16, batch=4) >=
// 1.5
#pragma once
#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "lab/table.h"

namespace crest::lab {

struct Expression {
  enum class Kind { number, text, name, call, unary, binary };
  Kind kind = Kind::number;
  std::string token;  // name, string, function, operator ("not", "-", "and", "<=", ..)
  double number = 0;
  Unit unit = Unit::number;       // bytes: 5GB
  std::vector<Expression> inner;  // operands, or arguments
  std::vector<Filter> filters;    // of a call
  size_t at = 0, end = 0;         // position in the text
};

// An error in an expression: what, where in the text, what to do. The caller adds the file and
// throws an Error.
struct ExpressionError {
  std::string what, advice;
  size_t at = 0;
};

// Throws ExpressionError.
Expression parse_expression(std::string_view text);

// The names an expression may use, checked before anything is measured.
struct Vocabulary {
  std::set<std::string> columns, keys, names;
};
// Throws ExpressionError for wrong arguments and for unknown functions, columns, keys and names,
// suggesting the nearest.
void check_names(const Expression& expression, const Vocabulary& vocabulary);
// The columns in the expression.
void collect_columns(const Expression& expression, std::set<std::string>& columns);

struct Scope {
  const Table* table = nullptr;
  // The value of a name. check_names has rejected unknown names.
  std::function<Value(const std::string&)> name;
  // Receives text and value of every name and every function over the table, in order.
  std::function<void(const std::string&, const Value&)> observe;
};
// text: the source of `expression`. Wrong types throw ExpressionError.
Value evaluate(const Expression& expression, std::string_view text, const Scope& scope);

// A function of the language.
struct Function {
  const char* name;
  const char* help;  // arguments and result
  enum class Takes { column, two_columns, columns_and_number, values } takes;
  int values;  // number of arguments, for Takes::values
  Value (*over_rows)(const std::vector<const Row*>& rows, const std::string& column, const std::string& second);
  Value (*over_values)(const std::vector<Value>& values);
  // For Takes::columns_and_number: two columns and an expression.
  Value (*to_level)(const std::vector<const Row*>& rows, const std::string& column, const std::string& second,
                    double level) = nullptr;
};
// All functions except ratio, because ratio reads two sets of rows.
const std::vector<Function>& functions();

}  // namespace crest::lab
