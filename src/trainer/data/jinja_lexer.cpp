#include "data/jinja_lexer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "core/error.h"
#include "core/text.h"

namespace crest::jinja {

namespace {

constexpr std::string_view blanks = " \t\n\r\f\v";

bool is_name(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

class Lexer {
 public:
  Lexer(std::string_view source, const std::string& where) : rest_(source), where_(where) {
    if (rest_.ends_with('\n')) rest_.remove_suffix(1);
  }

  std::vector<Token> all() {
    while (!rest_.empty()) {
      const size_t at = std::min({rest_.find("{{"), rest_.find("{%"), rest_.find("{#")});
      std::string_view data = take(at);
      const char kind = rest_.size() > 1 ? rest_[1] : ' ', mark = rest_.size() > 2 ? rest_[2] : ' ';
      if (!rest_.empty()) {
        if (mark == '-')
          data = data.substr(0, data.find_last_not_of(blanks) + 1);
        else if (kind != '{' && mark != '+')
          data = without_indent(data);
      }
      add(Token::Kind::text, std::string(data));
      if (rest_.empty()) break;
      take(2 + (mark == '-' || (mark == '+' && kind != '{')));
      if (kind == '#')
        comment();
      else if (kind == '%' && raw())
        continue;
      else
        tag(kind == '{');
    }
    tokens_.push_back({Token::Kind::end, "", line_});
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void refuse_here(const std::string& problem) const {
    fail(problem, fmt::format("{}, line {}", where_, line_));
  }

  std::string_view take(size_t count) {
    const std::string_view taken = rest_.substr(0, count);
    line_ += int(std::ranges::count(taken, '\n'));
    if (!taken.empty()) line_starts_ = taken.back() == '\n';
    rest_.remove_prefix(taken.size());
    return taken;
  }

  void add(Token::Kind kind, std::string text) {
    if (kind != Token::Kind::text || !text.empty()) tokens_.push_back({kind, std::move(text), line_});
  }

  // Spaces between the beginning of a line and a tag.
  std::string_view without_indent(std::string_view data) const {
    const size_t line = data.rfind('\n');
    if (line == std::string_view::npos && !(data_begins_line_)) return data;
    const size_t begin = line == std::string_view::npos ? 0 : line + 1;
    return data.substr(begin).find_first_not_of(" \t\f\v\r") == std::string_view::npos ? data.substr(0, begin) : data;
  }

  // Behind a tag.
  void trim(char mark, bool block) {
    if (mark == '-')
      take(std::min(rest_.find_first_not_of(blanks), rest_.size()));
    else if (block && mark != '+' && rest_.starts_with('\n'))
      take(1);
    data_begins_line_ = line_starts_;
  }

  void comment() {
    const size_t end = rest_.find("#}");
    if (end == std::string_view::npos) refuse_here("a comment {# has no end #}");
    const std::string_view inside = take(end);
    const char mark = inside.empty() ? ' ' : inside.back();
    take(2);
    trim(mark, true);
  }

  // {% raw %}; whether there was one.
  bool raw() {
    auto word = [&](std::string_view& text, std::string_view name, char& mark) {
      text.remove_prefix(std::min(text.find_first_not_of(blanks), text.size()));
      if (!text.starts_with(name)) return false;
      text.remove_prefix(name.size());
      text.remove_prefix(std::min(text.find_first_not_of(blanks), text.size()));
      mark = text.empty() ? ' ' : text[0];
      if (mark == '-' || mark == '+') text.remove_prefix(1);
      if (!text.starts_with("%}")) return false;
      text.remove_prefix(2);
      return true;
    };
    std::string_view after = rest_;
    char begin_mark = ' ', end_mark = ' ';
    if (!word(after, "raw", begin_mark)) return false;
    take(rest_.size() - after.size());
    trim(begin_mark, false);
    for (size_t at = 0; (at = rest_.find("{%", at)) != std::string_view::npos; at += 2) {
      std::string_view end = rest_.substr(at + 2);
      const bool minus = end.starts_with('-');
      if (minus || end.starts_with('+')) end.remove_prefix(1);
      if (!word(end, "endraw", end_mark)) continue;
      std::string_view data = rest_.substr(0, at);
      data = minus ? data.substr(0, data.find_last_not_of(blanks) + 1) : without_indent(data);
      add(Token::Kind::text, std::string(data));
      take(rest_.size() - end.size());
      trim(end_mark, true);
      return true;
    }
    refuse_here("{% raw %} has no {% endraw %}");
  }

  void tag(bool print) {
    add(print ? Token::Kind::begin_print : Token::Kind::begin_tag, "");
    const std::string_view end = print ? "}}" : "%}";
    std::string open;  // brackets
    for (;;) {
      take(std::min(rest_.find_first_not_of(blanks), rest_.size()));
      if (rest_.empty()) refuse_here(print ? "{{ has no end }}" : "{% has no end %}");
      const char mark = rest_[0];
      if (open.empty() &&
          (rest_.starts_with(end) || ((mark == '-' || mark == '+') && rest_.substr(1).starts_with(end)))) {
        add(print ? Token::Kind::end_print : Token::Kind::end_tag, "");
        take(mark == '-' || mark == '+' ? 3 : 2);
        return trim(mark, !print);
      }
      if (mark == '"' || mark == '\'')
        add(Token::Kind::string, string(mark));
      else if (is_digit(mark))
        number();
      else if (is_name(mark))
        add(Token::Kind::name, std::string(take(size_t(std::ranges::find_if_not(rest_, is_name) - rest_.begin()))));
      else
        symbol(open);
    }
  }

  void number() {
    size_t end = 0;
    while (end < rest_.size() && (is_digit(rest_[end]) || rest_[end] == '_')) ++end;
    if (end + 1 < rest_.size() && rest_[end] == '.' && is_digit(rest_[end + 1])) {
      ++end;
      while (end < rest_.size() && is_digit(rest_[end])) ++end;
    }
    std::string text(take(end));
    std::erase(text, '_');
    add(Token::Kind::number, std::move(text));
  }

  void symbol(std::string& open) {
    static constexpr std::array<std::string_view, 26> symbols = {"**", "//", "==", "!=", "<=", ">=", "+", "-", "*",
                                                                 "/",  "%",  "~",  "<",  ">",  "=",  "(", ")", "[",
                                                                 "]",  "{",  "}",  ",",  ":",  ".",  "|", ";"};
    for (auto s : symbols) {
      if (!rest_.starts_with(s)) continue;
      if (s == "(" || s == "[" || s == "{") open += s == "(" ? ')' : s == "[" ? ']' : '}';
      if (s == ")" || s == "]" || s == "}") {
        if (open.empty() || open.back() != s[0]) refuse_here(fmt::format("'{}' closes nothing", s));
        open.pop_back();
      }
      return add(Token::Kind::symbol, std::string(take(s.size())));
    }
    refuse_here(
        fmt::format("the character '{}' has no meaning here", printable(rest_.substr(0, first_character(rest_).size))));
  }

  // A literal, as in Python.
  std::string string(char quote) {
    size_t end = 1;
    while (end < rest_.size() && rest_[end] != quote) end += rest_[end] == '\\' ? 2 : 1;
    if (end >= rest_.size()) refuse_here("a text has no end");
    const std::string_view inside = take(end + 1).substr(1, end - 1);
    std::string out;
    for (size_t i = 0; i < inside.size(); ++i) {
      const char c = inside[i], next = i + 1 < inside.size() ? inside[i + 1] : '\\';
      if (c != '\\') {
        out += c;
        continue;
      }
      ++i;
      constexpr std::string_view from = "ntrbfav\\'\"0", to = std::string_view("\n\t\r\b\f\a\v\\'\"\0", 11);
      if (size_t at = from.find(next); at != std::string_view::npos)
        out += to[at];
      else if (next == 'x' || next == 'u' || next == 'U')
        i += code_point(inside.substr(i + 1), next == 'x' ? 2 : next == 'u' ? 4 : 8, out);
      else if (next != '\n')
        out += '\\', out += next;
    }
    return out;
  }

  size_t code_point(std::string_view digits, size_t count, std::string& out) const {
    uint32_t code = 0;
    digits = digits.substr(0, count);
    auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), code, 16);
    if (digits.size() < count || end != digits.data() + count || error != std::errc() || code > 0x10FFFF ||
        (code >= 0xD800 && code < 0xE000))
      refuse_here("a text has a wrong \\x or \\u");
    if (code < 0x80) {
      out += char(code);
      return count;
    }
    const uint32_t more = code < 0x800 ? 1 : code < 0x10000 ? 2 : 3, lead[] = {0, 0xC0, 0xE0, 0xF0};
    out += char(lead[more] | code >> (6 * more));
    for (uint32_t i = more; i-- > 0;) out += char(0x80 | (code >> (6 * i) & 0x3F));
    return count;
  }

  std::string_view rest_;
  const std::string& where_;
  int line_ = 1;
  bool line_starts_ = true, data_begins_line_ = true;
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> tokens_of(std::string_view source, const std::string& where) {
  std::string lines;
  for (size_t i = 0; i < source.size(); ++i)
    if (!source.substr(i).starts_with("\r\n")) lines += source[i];
  return Lexer(lines, where).all();
}

}  // namespace crest::jinja
