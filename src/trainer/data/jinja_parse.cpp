#include "data/jinja_parse.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <initializer_list>

#include "core/error.h"
#include "core/text.h"
#include "data/jinja_lexer.h"

namespace crest::jinja {

namespace {

using Kind = Expression::Kind;

constexpr int deepest_nesting = 200;  // of nested statements and expressions
class Parser {
 public:
  Parser(std::vector<Token> tokens, const std::string& where) : tokens_(std::move(tokens)), where_(where) {}

  Block all() {
    Block block = statements({});
    if (now().kind != Token::Kind::end) refuse_here("a tag has no place here");
    return block;
  }

 private:
  using Names = std::vector<std::string_view>;

  [[noreturn]] void refuse_here(const std::string& problem) const {
    fail(problem, fmt::format("{}, line {}", where_, now().line));
  }
  const Token& now() const { return tokens_[at_]; }
  const Token& next() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  Token take() { return tokens_[at_ + 1 < tokens_.size() ? at_++ : at_]; }
  bool is(Token::Kind kind, std::string_view text) const { return now().kind == kind && now().text == text; }
  bool symbol(std::string_view text) const { return is(Token::Kind::symbol, text); }
  bool word(std::string_view text) const { return is(Token::Kind::name, text); }
  bool accept(Token::Kind kind, std::string_view text) {
    if (!is(kind, text)) return false;
    take();
    return true;
  }
  bool accept_symbol(std::string_view text) { return accept(Token::Kind::symbol, text); }
  bool accept_word(std::string_view text) { return accept(Token::Kind::name, text); }
  void expect_symbol(std::string_view text) {
    if (!accept_symbol(text)) refuse_here(fmt::format("'{}' is missing before '{}'", text, printable(now().text)));
  }
  void expect_end() {
    if (now().kind != Token::Kind::end_tag) refuse_here(fmt::format("'{}' has no place here", printable(now().text)));
    take();
  }
  std::string expect_name() {
    if (now().kind != Token::Kind::name) refuse_here("a name is missing");
    return take().text;
  }

  // Until a tag with one of these names, whose name is then the next token.
  Block statements(const Names& ends) {
    if (++depth_ > deepest_nesting) refuse_here("too many statements are inside of each other");
    Block block;
    while (now().kind != Token::Kind::end) {
      if (now().kind == Token::Kind::begin_tag && std::ranges::find(ends, next().text) != ends.end()) {
        take();
        break;
      }
      block.push_back(statement());
    }
    if (!ends.empty() && now().kind == Token::Kind::end)
      refuse_here(fmt::format("{{% {} %}} is missing", fmt::join(ends, " or ")));
    --depth_;
    return block;
  }

  Statement statement() {
    Statement s;
    s.line = now().line;
    const Token token = take();
    if (token.kind == Token::Kind::text) {
      s.text = token.text;
    } else if (token.kind == Token::Kind::begin_print) {
      s.kind = Statement::Kind::output;
      s.expression = tuple();
      if (now().kind != Token::Kind::end_print)
        refuse_here(fmt::format("'{}' has no place here", printable(now().text)));
      take();
    } else {
      tag(s);
    }
    return s;
  }

  void tag(Statement& s) {
    const std::string name = expect_name();
    if (name == "if") return branch(s);
    if (name == "for") return loop(s);
    if (name == "set") return set(s);
    if (name == "macro") return macro(s);
    if (name == "break" || name == "continue") {
      s.kind = name == "break" ? Statement::Kind::break_loop : Statement::Kind::continue_loop;
      if (loops_ == 0) refuse_here(fmt::format("{{% {} %}} is outside of a loop", name));
      return expect_end();
    }
    if (name == "generation") {  // marks what is trained
      s.kind = Statement::Kind::block;
      expect_end();
      s.body = statements({"endgeneration"});
      take();
      return expect_end();
    }
    refuse_here(fmt::format("Crest does not know the statement '{}'", printable(name)));
  }

  void branch(Statement& s) {
    s.kind = Statement::Kind::branch;
    s.expression = expression();
    expect_end();
    s.body = statements({"elif", "else", "endif"});
    while (accept_word("elif")) {
      ExpressionPtr condition = expression();
      expect_end();
      s.branches.emplace_back(std::move(condition), statements({"elif", "else", "endif"}));
    }
    if (accept_word("else")) {
      expect_end();
      s.otherwise = statements({"endif"});
    }
    take();
    expect_end();
  }

  void loop(Statement& s) {
    s.kind = Statement::Kind::loop;
    do s.targets.push_back(expect_name());
    while (accept_symbol(","));
    if (!accept_word("in")) refuse_here("'in' is missing");
    s.expression = either();
    if (accept_word("if")) s.condition = expression();
    if (word("recursive")) refuse_here("Crest does not know recursive loops");
    expect_end();
    ++loops_;
    s.body = statements({"else", "endfor"});
    --loops_;
    if (accept_word("else")) {
      expect_end();
      s.otherwise = statements({"endfor"});
    }
    take();
    expect_end();
  }

  void set(Statement& s) {
    s.kind = Statement::Kind::set;
    do s.targets.push_back(expect_name());
    while (accept_symbol(","));
    if (s.targets.size() == 1 && accept_symbol(".")) s.target_attribute = expect_name();
    if (accept_symbol("=")) {
      s.expression = tuple();
      return expect_end();
    }
    s.kind = Statement::Kind::set_block;
    if (s.targets.size() > 1) refuse_here("'=' is missing");
    expect_end();
    s.body = statements({"endset"});
    take();
    expect_end();
  }

  void macro(Statement& s) {
    s.kind = Statement::Kind::macro;
    s.text = expect_name();
    expect_symbol("(");
    while (!accept_symbol(")")) {
      if (!s.targets.empty()) expect_symbol(",");
      s.targets.push_back(expect_name());
      s.defaults.push_back(accept_symbol("=") ? expression() : nullptr);
    }
    expect_end();
    const int loops = std::exchange(loops_, 0);
    s.body = statements({"endmacro"});
    loops_ = loops;
    take();
    expect_end();
  }

  ExpressionPtr make(Kind kind, std::string name = "") const {
    auto e = std::make_unique<Expression>();
    e->kind = kind, e->line = now().line, e->name = std::move(name);
    return e;
  }
  void put(Expression& into, ExpressionPtr part) const {
    if (part && part->depth >= into.depth) into.depth = part->depth + 1;
    if (into.depth > deepest_nesting) refuse_here("too many expressions are inside of each other");
    into.operands.push_back(std::move(part));
  }
  template <class... Parts>
  ExpressionPtr make_of(Kind kind, std::string name, Parts... parts) const {
    ExpressionPtr e = make(kind, std::move(name));
    (put(*e, std::move(parts)), ...);
    return e;
  }

  // a, b is a list.
  ExpressionPtr tuple() {
    ExpressionPtr first = expression();
    if (!symbol(",")) return first;
    ExpressionPtr list = make_of(Kind::list, "", std::move(first));
    while (accept_symbol(",")) {
      if (now().kind == Token::Kind::end_tag || now().kind == Token::Kind::end_print || symbol(")")) break;
      put(*list, expression());
    }
    return list;
  }

  ExpressionPtr expression() {
    if (++depth_ > deepest_nesting) refuse_here("too many expressions are inside of each other");
    ExpressionPtr value = either();
    while (accept_word("if")) {
      ExpressionPtr condition = either();
      value = make_of(Kind::condition, "", std::move(value), std::move(condition));
      if (accept_word("else")) put(*value, expression());
    }
    --depth_;
    return value;
  }
  ExpressionPtr either() {
    ExpressionPtr left = both();
    while (accept_word("or")) left = make_of(Kind::either, "", std::move(left), both());
    return left;
  }
  ExpressionPtr both() {
    ExpressionPtr left = negation();
    while (accept_word("and")) left = make_of(Kind::both, "", std::move(left), negation());
    return left;
  }
  ExpressionPtr negation() {
    int count = 0;
    while (word("not") && !(next().kind == Token::Kind::name && next().text == "in")) take(), ++count;
    if (count > deepest_nesting) refuse_here("too many expressions are inside of each other");
    ExpressionPtr value = comparison();
    for (; count > 0; --count) value = make_of(Kind::unary, "not", std::move(value));
    return value;
  }
  ExpressionPtr comparison() {
    static constexpr std::array<std::string_view, 6> operators = {"==", "!=", "<", ">", "<=", ">="};
    ExpressionPtr left = sum();
    bool compared = false;
    for (;; compared = true) {
      std::string name;
      if (now().kind == Token::Kind::symbol && std::ranges::find(operators, now().text) != operators.end())
        name = take().text;
      else if (accept_word("in"))
        name = "in";
      else if (word("not") && next().kind == Token::Kind::name && next().text == "in")
        take(), take(), name = "not in";
      else
        return left;
      if (compared) refuse_here("Crest does not know comparisons of three values");
      left = make_of(Kind::binary, name, std::move(left), sum());
    }
  }
  // Left to right: a - b - c.
  template <class Part>
  ExpressionPtr chain(std::initializer_list<std::string_view> operators, Part part) {
    ExpressionPtr left = part();
    while (now().kind == Token::Kind::symbol && std::ranges::find(operators, now().text) != operators.end()) {
      std::string name = take().text;
      left = make_of(Kind::binary, std::move(name), std::move(left), part());
    }
    return left;
  }
  ExpressionPtr sum() {
    return chain({"+", "-"}, [&] { return chain({"~"}, [&] { return product(); }); });
  }
  ExpressionPtr product() {
    return chain({"*", "/", "//", "%"}, [&] { return unary(); });
  }
  ExpressionPtr unary() {
    std::string signs;
    while (symbol("-") || symbol("+")) signs += take().text;
    ExpressionPtr value = power();
    for (; !signs.empty(); signs.pop_back())
      value = make_of(Kind::unary, signs.substr(signs.size() - 1), std::move(value));
    return behind(std::move(value));
  }
  ExpressionPtr power() {
    ExpressionPtr left = primary();
    if (!accept_symbol("**")) return left;
    return make_of(Kind::binary, "**", std::move(left), unary());
  }

  ExpressionPtr primary() {
    ExpressionPtr value;
    const Token token = now();
    if (token.kind == Token::Kind::string) {
      value = make(Kind::literal);
      std::string text;
      while (now().kind == Token::Kind::string) text += take().text;
      value->value = Value(std::move(text));
    } else if (token.kind == Token::Kind::number) {
      value = number();
    } else if (token.kind == Token::Kind::name) {
      value = name();
    } else if (accept_symbol("(")) {
      value = symbol(")") ? make(Kind::list) : tuple();
      expect_symbol(")");
    } else if (accept_symbol("[")) {
      value = make(Kind::list);
      while (!accept_symbol("]")) {
        if (!value->operands.empty()) expect_symbol(",");
        if (!symbol("]")) put(*value, expression());
      }
    } else if (accept_symbol("{")) {
      value = make(Kind::dictionary);
      while (!accept_symbol("}")) {
        if (!value->operands.empty()) expect_symbol(",");
        if (symbol("}")) continue;
        put(*value, expression());
        expect_symbol(":");
        put(*value, expression());
      }
    } else {
      refuse_here(token.text.empty() ? "an expression is missing"
                                     : fmt::format("'{}' has no place here", printable(token.text)));
    }
    return inside(std::move(value));
  }

  ExpressionPtr number() {
    ExpressionPtr value = make(Kind::literal);
    const std::string text = take().text;
    const char *begin = text.data(), *end = begin + text.size();
    int64_t whole = 0;
    double real = 0;
    if (text.find('.') == std::string::npos) {
      if (std::from_chars(begin, end, whole).ec != std::errc()) refuse_here("a number is too large");
      value->value = Value(whole);
    } else {
      if (std::from_chars(begin, end, real).ec != std::errc()) refuse_here("a number is too large");
      value->value = Value(real);
    }
    return value;
  }

  ExpressionPtr name() {
    static constexpr std::array<std::string_view, 12> reserved = {"and", "or",   "in",  "is",  "if",    "else",
                                                                  "not", "elif", "for", "set", "endif", "endfor"};
    ExpressionPtr value = make(Kind::literal);
    const std::string text = take().text;
    if (text == "true" || text == "True" || text == "false" || text == "False")
      value->value = Value(text == "true" || text == "True");
    else if (text == "none" || text == "None")
      value->value = Value(nullptr);
    else if (std::ranges::find(reserved, text) != reserved.end())
      refuse_here(fmt::format("'{}' has no place here", text));
    else
      value->kind = Kind::name, value->name = text;
    return value;
  }

  // .name [item] (call)
  ExpressionPtr inside(ExpressionPtr value) {
    for (;;) {
      if (accept_symbol(".")) {
        if (now().kind == Token::Kind::number) {
          value = make_of(Kind::item, "", std::move(value), number());
        } else {
          std::string name = expect_name();
          value = make_of(Kind::attribute, std::move(name), std::move(value));
        }
      } else if (accept_symbol("[")) {
        value = subscript(std::move(value));
      } else if (symbol("(")) {
        value = make_of(Kind::call, "", std::move(value));
        arguments(*value);
      } else {
        return value;
      }
    }
  }

  ExpressionPtr subscript(ExpressionPtr value) {
    std::vector<ExpressionPtr> parts(1);
    for (;;) {
      if (symbol("]")) break;
      if (accept_symbol(":"))
        parts.emplace_back();
      else if (parts.back())
        refuse_here("']' is missing");
      else
        parts.back() = expression();
    }
    expect_symbol("]");
    if (parts.size() > 3) refuse_here("a slice has more than three parts");
    if (parts.size() == 1) {
      if (!parts[0]) refuse_here("an expression is missing");
      return make_of(Kind::item, "", std::move(value), std::move(parts[0]));
    }
    parts.resize(3);
    return make_of(Kind::slice, "", std::move(value), std::move(parts[0]), std::move(parts[1]), std::move(parts[2]));
  }

  void arguments(Expression& call) {
    expect_symbol("(");
    for (bool first = true; !accept_symbol(")"); first = false) {
      if (!first) expect_symbol(",");
      if (symbol(")")) continue;
      if (now().kind == Token::Kind::name && next().kind == Token::Kind::symbol && next().text == "=") {
        std::string name = take().text;
        take();
        ExpressionPtr value = expression();
        call.depth = std::max(call.depth, value->depth + 1);
        call.named.emplace_back(std::move(name), std::move(value));
      } else {
        put(call, expression());
      }
    }
  }

  // | filter, is test
  ExpressionPtr behind(ExpressionPtr value) {
    for (;;) {
      if (accept_symbol("|")) {
        std::string name = expect_name();
        value = make_of(Kind::filter, std::move(name), std::move(value));
        if (symbol("(")) arguments(*value);
      } else if (accept_word("is")) {
        const bool negated = accept_word("not");
        std::string name = expect_name();
        value = make_of(Kind::test, std::move(name), std::move(value));
        value->negated = negated;
        if (symbol("("))
          arguments(*value);
        else if (one_argument())
          put(*value, primary());
      } else if (symbol("(")) {
        value = make_of(Kind::call, "", std::move(value));
        arguments(*value);
      } else {
        return value;
      }
    }
  }
  // x is divisibleby 3
  bool one_argument() const {
    if (now().kind == Token::Kind::string || now().kind == Token::Kind::number || symbol("[") || symbol("{"))
      return true;
    static constexpr std::array<std::string_view, 6> others = {"else", "or", "and", "is", "if", "not"};
    return now().kind == Token::Kind::name && now().text != "in" &&
           std::ranges::find(others, now().text) == others.end();
  }

  std::vector<Token> tokens_;
  const std::string& where_;
  size_t at_ = 0;
  int depth_ = 0, loops_ = 0;
};

}  // namespace

Block parse(std::string_view source, const std::string& where) { return Parser(tokens_of(source, where), where).all(); }

}  // namespace crest::jinja
