// The statements and expressions of a chat template in Jinja.
#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "data/jinja_value.h"

namespace crest::jinja {

struct Expression;
using ExpressionPtr = std::unique_ptr<Expression>;

struct Expression {
  enum class Kind : uint8_t {
    literal,
    name,
    list,        // operands
    dictionary,  // keys and values in turn
    unary,       // name: "-", "+", "not"
    binary,      // name: the operator
    both,        // and
    either,      // or
    condition,   // value, condition, other (or none)
    attribute,   // of operands[0]
    item,        // operands: object, key
    slice,       // operands: object, begin, end, step; null where left out
    call,        // operands[0] with the others and `named`
    filter,      // the same, `name`
    test         // the same, `name`; negated: is not
  };
  Kind kind = Kind::literal;
  int line = 0, depth = 1;
  bool negated = false;
  std::string name;
  Value value;
  std::vector<ExpressionPtr> operands;
  std::vector<std::pair<std::string, ExpressionPtr>> named;
};

struct Statement;
using Block = std::vector<Statement>;

struct Statement {
  enum class Kind : uint8_t { text, output, branch, loop, set, set_block, macro, break_loop, continue_loop, block };
  Kind kind = Kind::text;
  int line = 0;
  std::string text;                     // of the template; the name of a macro
  std::vector<std::string> targets;     // of set and for; the parameters of a macro
  std::string target_attribute;         // set NAMESPACE.ATTRIBUTE
  ExpressionPtr expression;             // printed, tested, looped over, assigned
  ExpressionPtr condition;              // of a loop
  std::vector<ExpressionPtr> defaults;  // of a macro's parameters; null: none
  Block body;
  std::vector<std::pair<ExpressionPtr, Block>> branches;  // elif
  Block otherwise;                                        // else
};

// Throws with the line in `where`.
Block parse(std::string_view source, const std::string& where);

}  // namespace crest::jinja
