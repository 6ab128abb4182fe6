// The language of claims, columns and quantities (docs/guides/lab.md): arithmetic, comparisons, and functions over a
// table, such as  ratio(ms, precision=fp32, precision=bf16, batch=4) >= 1.5
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
  std::string token;  // name, text, function, operator ("not", "-", "and", "<=", ..)
  double number = 0;
  std::vector<Expression> inner;  // operands, or arguments
  std::vector<Filter> filters;    // of a call
  size_t at = 0, end = 0;         // its place in the text
};

// A mistake in an expression: what, where in the text, what to do. Callers know the file and turn it into an Error.
struct ExpressionError {
  std::string what, advice;
  size_t at = 0;
};

// Throws ExpressionError.
Expression parse_expression(std::string_view text);

// What an expression may speak of; checked before anything is measured.
struct Vocabulary {
  std::set<std::string> columns, keys, names;
};
// Throws ExpressionError for unknown functions, columns, keys and names (with the nearest), and wrong arguments.
void check_names(const Expression& expression, const Vocabulary& vocabulary);
// Columns that it reads.
void collect_columns(const Expression& expression, std::set<std::string>& columns);

struct Scope {
  const Table* table = nullptr;
  // The value of a name; throws for one that check_names would not know.
  std::function<Value(const std::string&)> name;
  // Told the text and value of every function over the table and every name, in order.
  std::function<void(const std::string&, const Value&)> told;
};
// text: what `expression` was parsed from. Wrong types are ExpressionError.
Value evaluate(const Expression& expression, std::string_view text, const Scope& scope);

// A function of the language.
struct Function {
  const char* name;
  const char* help;  // "column, [column], filters": what it takes and gives
  enum class Takes { column, two_columns, values } takes;
  int values;  // how many, for Takes::values
  Value (*over_rows)(const std::vector<const Row*>& rows, const std::string& column, const std::string& second);
  Value (*over_values)(const std::vector<Value>& values);
};
// All of them but ratio, which reads two sets of rows.
const std::vector<Function>& functions();

}  // namespace crest::lab
