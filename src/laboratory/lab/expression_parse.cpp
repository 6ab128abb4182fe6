#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdlib>

#include "core/text.h"
#include "lab/expression.h"
#include "profile/class_label.h"

namespace crest::lab {

namespace {

constexpr int deepest = 100;
constexpr size_t longest = 4000;

struct Suffix {
  const char* name;
  double factor;
  Unit unit = Unit::bytes;
};
constexpr Suffix suffixes[] = {{"%", 0.01, Unit::number},
                               {"KiB", 1024.0},
                               {"MiB", 1048576.0},
                               {"GiB", 1073741824.0},
                               {"kB", 1e3},
                               {"MB", 1e6},
                               {"GB", 1e9},
                               {"FLOP", 1.0, Unit::flops},
                               {"ms", 1.0, Unit::ms},
                               {"s", 1e3, Unit::ms}};

bool starts_name(char c) { return std::isalpha(static_cast<unsigned char>(c)) || c == '_'; }
bool continues_name(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }
bool digit(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  Expression parse() {
    if (text_.size() > longest)
      throw ExpressionError{fmt::format("the expression is longer than {} characters", longest), "Split it.", 0};
    Expression e = any();
    skip();
    if (i_ < text_.size()) expected("an operator or the end");
    return e;
  }

 private:
  using Level = Expression (Parser::*)();

  Expression any() { return chain(&Parser::conjunction, {"or"}); }
  Expression conjunction() { return chain(&Parser::negation, {"and"}); }
  Expression negation() {
    skip();
    size_t at = i_;
    if (!take_keyword("not")) return comparison();
    Deeper deeper(*this);
    return operation("not", negation(), at);
  }
  Expression comparison() {
    Expression left = sum();
    for (const char* op : {"<=", ">=", "==", "!=", "<", ">"}) {
      if (!take(op)) continue;
      size_t at = left.at;
      Expression right = sum();
      return operation(op, std::move(left), std::move(right), at);
    }
    return left;
  }
  Expression sum() { return chain(&Parser::product, {"+", "-"}); }
  Expression product() { return chain(&Parser::sign, {"*", "/"}); }
  Expression sign() {
    skip();
    size_t at = i_;
    if (!take("-")) return power();
    Deeper deeper(*this);
    return operation("-", sign(), at);
  }
  Expression power() {
    Expression base = primary();
    if (!take("^")) return base;
    Deeper deeper(*this);
    size_t at = base.at;
    Expression exponent = sign();
    return operation("^", std::move(base), std::move(exponent), at);
  }

  Expression chain(Level next, std::initializer_list<const char*> operators) {
    Deeper deeper(*this);
    Expression left = (this->*next)();
    for (int links = 0;; ++links) {
      auto op = std::find_if(operators.begin(), operators.end(),
                             [&](const char* word) { return starts_name(word[0]) ? take_keyword(word) : take(word); });
      if (op == operators.end()) return left;
      if (links > deepest) throw ExpressionError{"more than 100 operands in a row", "Split the expression.", i_};
      size_t at = left.at;
      Expression right = (this->*next)();
      left = operation(*op, std::move(left), std::move(right), at);
    }
  }

  Expression primary() {
    skip();
    size_t at = i_;
    if (i_ >= text_.size()) expected("a number, a name or '('");
    if (take("(")) {
      Deeper deeper(*this);
      Expression e = any();
      if (!take(")")) expected("')'");
      return e;
    }
    char c = text_[i_];
    if (c == '"' || c == '\'') return leaf(Expression::Kind::text, quoted(), at);
    if (digit(c) || c == '.') return number();
    if (!starts_name(c)) expected("a number, a name or '('");
    std::string word = name();
    if (word == "and" || word == "or" || word == "not") {
      i_ = at;
      expected("a number, a name or '('");
    }
    if (!take("(")) return leaf(Expression::Kind::name, word, at);
    return call(word, at);
  }

  Expression call(const std::string& function, size_t at) {
    Deeper deeper(*this);
    Expression e = leaf(Expression::Kind::call, function, at);
    if (!take(")")) {
      do argument(e);
      while (take(","));
      if (!take(")")) expected("',' or ')'");
    }
    e.end = i_;
    return e;
  }

  // key = pattern, or an expression.
  void argument(Expression& call) {
    skip();
    size_t at = i_;
    if (i_ < text_.size() && starts_name(text_[i_])) {
      std::string key = name();
      skip();
      if (i_ < text_.size() && text_[i_] == '=' && text_.substr(i_, 2) != "==") {
        ++i_;
        call.filters.push_back({key, key == "class" ? read_op_class(pattern()) : pattern(), at});
        return;
      }
      i_ = at;
    }
    call.inner.push_back(any());
  }

  std::string pattern() {
    skip();
    if (i_ < text_.size() && (text_[i_] == '"' || text_[i_] == '\'')) return quoted();
    size_t begin = i_;
    while (i_ < text_.size() &&
           (continues_name(text_[i_]) || std::string_view(".*?|-/:").find(text_[i_]) != text_.npos))
      ++i_;
    if (begin == i_) expected("a value such as bf16, 16 or h.*.attn");
    return std::string(text_.substr(begin, i_ - begin));
  }

  std::string quoted() {
    char quote = text_[i_];
    size_t end = text_.find(quote, i_ + 1);
    if (end == text_.npos)
      throw ExpressionError{"unterminated string: the quote is not closed", "Add the closing quote.", i_};
    std::string word(text_.substr(i_ + 1, end - i_ - 1));
    i_ = end + 1;
    return word;
  }

  Expression number() {
    size_t at = i_;
    std::string digits;
    while (i_ < text_.size() &&
           (digit(text_[i_]) || text_[i_] == '.' ||
            ((text_[i_] == 'e' || text_[i_] == 'E') && i_ + 1 < text_.size() &&
             (digit(text_[i_ + 1]) ||
              ((text_[i_ + 1] == '-' || text_[i_ + 1] == '+') && i_ + 2 < text_.size() && digit(text_[i_ + 2])))) ||
            ((text_[i_] == '-' || text_[i_] == '+') && (digits.back() == 'e' || digits.back() == 'E'))))
      digits += text_[i_++];
    char* end = nullptr;
    double x = std::strtod(digits.c_str(), &end);
    if (*end || !std::isfinite(x))
      throw ExpressionError{"'" + digits + "' is not a number", "Write for example 2.5 or 1e6.", at};
    Unit unit = Unit::number;
    for (auto& suffix : suffixes)
      if (text_.substr(i_).starts_with(suffix.name)) {
        i_ += std::string_view(suffix.name).size();
        x *= suffix.factor;
        unit = suffix.unit;
        break;
      }
    if (i_ < text_.size() && continues_name(text_[i_]))
      throw ExpressionError{"unknown unit", "Units: %, KiB, MiB, GiB, kB, MB, GB, FLOP, ms, s.", i_};
    Expression e = leaf(Expression::Kind::number, digits, at);
    e.number = x, e.unit = unit;
    return e;
  }

  std::string name() {
    size_t begin = i_;
    while (i_ < text_.size() && continues_name(text_[i_])) ++i_;
    return std::string(text_.substr(begin, i_ - begin));
  }

  Expression leaf(Expression::Kind kind, std::string token, size_t at) const {
    Expression e;
    e.kind = kind, e.token = std::move(token), e.at = at, e.end = i_;
    return e;
  }
  Expression operation(const char* op, Expression operand, size_t at) const {
    Expression e = leaf(Expression::Kind::unary, op, at);
    e.inner.push_back(std::move(operand));
    return e;
  }
  Expression operation(const char* op, Expression left, Expression right, size_t at) const {
    Expression e = leaf(Expression::Kind::binary, op, at);
    e.inner.reserve(2);
    e.inner.push_back(std::move(left)), e.inner.push_back(std::move(right));
    return e;
  }

  void skip() {
    while (i_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[i_]))) ++i_;
  }
  bool take(std::string_view sign) {
    skip();
    if (!text_.substr(i_).starts_with(sign)) return false;
    i_ += sign.size();
    return true;
  }
  bool take_keyword(std::string_view word) {
    skip();
    if (!text_.substr(i_).starts_with(word)) return false;
    if (i_ + word.size() < text_.size() && continues_name(text_[i_ + word.size()])) return false;
    i_ += word.size();
    return true;
  }

  struct Deeper {
    explicit Deeper(Parser& p) : parser(p) {
      if (++parser.depth_ > deepest) throw ExpressionError{"nested too deeply", "Split the expression.", parser.i_};
    }
    ~Deeper() { --parser.depth_; }
    Parser& parser;
  };

  [[noreturn]] void expected(const std::string& what) const {
    std::string found = i_ < text_.size() ? "'" + printable(text_.substr(i_, 12)) + "'" : "the end";
    throw ExpressionError{fmt::format("expected {}, found {}", what, found),
                          "docs/reference/lab.md describes the language.", i_};
  }

  std::string_view text_;
  size_t i_ = 0;
  int depth_ = 0;
};

}  // namespace

Expression parse_expression(std::string_view text) { return Parser(text).parse(); }

}  // namespace crest::lab
