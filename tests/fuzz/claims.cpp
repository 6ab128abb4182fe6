// Expressions of experiments: parsed, checked, and evaluated over a small table.
#include "fuzz.h"
#include "lab/expression.h"

using namespace crest::lab;

static void fuzz_claims(std::string_view text) {
  static const Table table = [] {
    Table t;
    t.rows.push_back({{{"p", "a"}, {"n", "1"}}, {{"ms", Value::range(2, 1, 3)}}, "", ""});
    t.rows.push_back({{{"p", "b"}, {"n", "2"}}, {{"ms", Value::number(4)}, {"d", Value::of_text("f16")}}, "", ""});
    t.rows.push_back({{{"p", "c"}}, {}, "it is absent", ""});
    return t;
  }();
  Scope scope;
  scope.table = &table;
  scope.name = [](const std::string&) { return Value::number(7); };
  try {
    Expression e = parse_expression(text);
    check_names(e, {{"ms", "d"}, {"p", "n"}, {"q"}});
    (void)describe(evaluate(e, text, scope));
  } catch (const ExpressionError&) {
  }
}
CREST_FUZZ_TARGET(fuzz_claims)
