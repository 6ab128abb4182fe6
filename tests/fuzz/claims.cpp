// Expressions of experiments: parsed, checked, and evaluated over a small table.
#include "lab/expression.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  using namespace crest::lab;
  std::string_view text(reinterpret_cast<const char*>(data), bytes);
  Table table;
  table.rows.push_back({{{"p", "a"}, {"n", "1"}}, {{"ms", Value::range(2, 1, 3)}}, "", ""});
  table.rows.push_back({{{"p", "b"}, {"n", "2"}}, {{"ms", Value::number(4)}, {"d", Value::word("f16")}}, "", ""});
  table.rows.push_back({{{"p", "c"}}, {}, "it is absent", ""});
  Scope scope;
  scope.table = &table;
  scope.name = [](const std::string&) { return Value::number(7); };
  try {
    Expression e = parse_expression(text);
    check_names(e, {{"ms", "d"}, {"p", "n"}, {"q"}});
    (void)describe(evaluate(e, text, scope));
  } catch (const ExpressionError&) {
  }
  return 0;
}
