#include "core/toml.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/text.h"
#include "core/toml_check.h"

namespace crest {

static std::string at(std::string_view where, size_t line, size_t column) {
  return fmt::format("{} (line {}, column {})", printable(where), line, column);
}

// A table header must continue with a key: toml++ 3.3 only asserts this ("[#" is undefined behavior
// there).
static bool begins_key(std::string_view text, size_t i) {
  auto skip_spaces = [&] {
    while (i < text.size() && (text[i] == ' ' || text[i] == '\t')) ++i;
  };
  skip_spaces();
  if (i < text.size() && text[i] == '[') {
    ++i;
    skip_spaces();
  }
  if (i >= text.size()) return false;
  char c = text[i];
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_' ||
         c == '"' || c == '\'';
}

// Rejects texts toml++ 3.3 cannot handle, in
// one scan for quotes, comments and brackets:
// - It limits the nesting of values, but not of dotted keys and table headers, and destroys a
//   document recursively: a megabyte of "a.a.a..." overflows the stack. Here their sum is limited.
// - Non-ASCII characters outside quotes and comments are undefined behavior in places. They are not
//   TOML either. Because it looks ahead over a value without regard to quotes, a quote or bracket in
//   the middle of a word is rejected too.
class TomlShape {
 public:
  TomlShape(std::string_view text, std::string_view where, int limit) : text_(text), where_(where), limit_(limit) {}

  void check() {
    i_ = line_start_ = text_.starts_with("\xef\xbb\xbf") ? 3 : 0;  // a byte order mark
    for (; i_ < text_.size(); ++i_) {
      character();
      if (base_ + chain_ > limit_)
        refuse(fmt::format("nested deeper than {} levels", limit_),
               "A Crest configuration has two levels; check that this is the right file.");
    }
  }

 private:
  struct Bracket {
    char kind;
    int base;
    bool in_list;
  };

  void character() {
    char c = text_[i_];
    switch (c) {
      case '\n':
        new_line();
        chain_ = 0;
        in_value_ = false;
        break;
      case '#':
        while (i_ + 1 < text_.size() && text_[i_ + 1] != '\n') ++i_;
        break;
      case '"':
      case '\'':
        if (!follows_separator() && !(previous() == '.' && !in_value_ && !in_list_)) refuse("a quote inside a word");
        quoted();
        break;
      case '.': ++chain_; break;
      case ' ':  // after a date-like text, toml++ 3.3 asserts more than one following digit
        if ((in_value_ || in_list_) && !follows_separator() && next_is_digit())
          refuse("a second value after a space", "Separate values by commas; put a date with a time in quotes.");
        break;
      case ':':  // outside quotes only times have it, and toml++ 3.3 asserts digits there instead of checking
        refuse("times of day are not supported", "Put the value in quotes.");
      case '=':
        if (in_value_ || in_list_) refuse("a second '='");
        in_value_ = true;
        break;
      case ',':
        chain_ = 0;
        in_value_ = false;
        break;
      case '[':
      case '{': open_bracket(c); break;
      case ']':
      case '}':
        if (open_.empty() || open_.back().kind != (c == ']' ? '[' : '{')) refuse("a bracket that closes nothing");
        base_ = open_.back().base, in_list_ = open_.back().in_list;
        open_.pop_back();
        chain_ = 0;
        break;
      default:
        if (static_cast<unsigned char>(c) >= 0x7f || (static_cast<unsigned char>(c) < 0x20 && c != '\t' && c != '\r'))
          refuse("a character that must be in quotes", "Put names and text with accents or other scripts in quotes.");
    }
  }

  void open_bracket(char c) {
    bool header = c == '[' && open_.empty() && text_.find_first_not_of(" \t\r", line_start_) == i_;
    if (header && !begins_key(text_, i_ + 1)) refuse("a name must follow '['");
    if (!follows_separator()) refuse("a bracket inside a word");
    open_.push_back({c, base_, in_list_});
    in_list_ = c == '[' && (in_value_ || in_list_);
    base_ += chain_ + 1;
    chain_ = 0;
    in_value_ = false;
  }

  void quoted() {
    char c = text_[i_];
    std::string_view three = text_.substr(i_, 3);
    bool is_long = three == "\"\"\"" || three == "\'\'\'";
    std::string_view end = is_long ? three : text_.substr(i_, 1);
    for (i_ += end.size(); i_ < text_.size() && text_.substr(i_, end.size()) != end; ++i_) {
      if (text_[i_] == '\\' && c == '"') {
        // toml++ 3.3 checks whether the next character is a space with a function undefined for
        // accents.
        size_t next = text_.find_first_not_of(" \t\r\n", i_ + 1);
        if (is_long && next != std::string_view::npos && static_cast<unsigned char>(text_[next]) >= 0x80)
          refuse("a backslash before a non-ASCII character", "Join the lines of this text.");
        ++i_;
      }
      if (i_ < text_.size() && text_[i_] == '\n') {
        new_line();
        if (!is_long) return;  // the parser reports it
      }
    }
    i_ += end.size() - 1;
    // A long string may end with one or two quotes of its content: """a"""" holds a".
    for (int extra = 0; is_long && extra < 2 && i_ + 1 < text_.size() && text_[i_ + 1] == c; ++extra) ++i_;
  }

  bool next_is_digit() const { return i_ + 1 < text_.size() && text_[i_ + 1] >= '0' && text_[i_ + 1] <= '9'; }
  char previous() const { return i_ > 0 ? text_[i_ - 1] : '\n'; }
  bool follows_separator() const {
    return i_ == line_start_ || std::string_view(" \t\r\n=,[{").find(previous()) != std::string_view::npos;
  }
  void new_line() { ++line_, line_start_ = i_ + 1; }
  [[noreturn]] void refuse(const std::string& what, const char* advice = "See https://toml.io for the syntax.") const {
    fail_usage("not valid TOML: " + what, at(where_, line_, i_ - std::min(i_, line_start_) + 1), advice);
  }

  std::string_view text_, where_;
  int limit_;
  size_t i_ = 0, line_ = 1, line_start_ = 0;
  std::vector<Bracket> open_;
  int base_ = 0, chain_ = 0;  // depth of the innermost bracket; dots in the current key (or number)
  bool in_list_ = false, in_value_ = false;
};

toml::table parse_toml(std::string_view text, std::string_view where, const TomlLimits& limits) {
  if (text.size() > limits.bytes)
    fail_usage(fmt::format("TOML of {} is larger than the {} allowed here", format_bytes(double(text.size())),
                           format_bytes(double(limits.bytes))),
               printable(where), "Check that this is the right file.");
  TomlShape(text, where, limits.depth).check();
  try {
    return toml::parse(text, std::string(where));
  } catch (const toml::parse_error& e) {
    auto begin = e.source().begin;
    fail_usage(fmt::format("not valid TOML: {}", printable(e.description())), at(where, begin.line, begin.column),
               "Correct the line; https://toml.io shows the syntax.");
  }
}

void check_toml(std::string_view text, std::string_view where) { (void)parse_toml(text, where); }

}  // namespace crest
