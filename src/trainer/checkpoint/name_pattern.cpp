#include "checkpoint/name_pattern.h"

#include <fmt/format.h>

#include <cctype>
#include <optional>
#include <utility>

#include "core/error.h"
#include "core/text.h"

namespace crest {

namespace {

using Bytes = std::bitset<256>;

template <class Test>
Bytes bytes_where(Test test) {
  Bytes set;
  for (int c = 0; c < 256; ++c) set[size_t(c)] = test(c);
  return set;
}

bool is_word(int c) { return c < 128 && (std::isalnum(c) || c == '_'); }

// Of \d, \w, \s and their complements.
std::optional<Bytes> class_of(char c) {
  const Bytes digits = bytes_where([](int b) { return b >= '0' && b <= '9'; }), words = bytes_where(is_word),
              spaces = bytes_where([](int b) { return b == ' ' || (b >= '\t' && b <= '\r'); });
  switch (c) {
    case 'd': return digits;
    case 'D': return ~digits;
    case 'w': return words;
    case 'W': return ~words;
    case 's': return spaces;
    case 'S': return ~spaces;
    default: return {};
  }
}

}  // namespace

// Appends the steps of each part while it reads it.
class PatternParser {
 public:
  using Step = NamePattern::Step;
  using Kind = NamePattern::Kind;

  PatternParser(const std::string& pattern, const std::string& where) : text_(pattern), where_(where) {}

  std::vector<Step> parse() {
    alternatives(0);
    if (!done()) fail_at("')' without '('");
    add({.kind = Kind::accept});
    return std::move(program_);
  }

 private:
  static constexpr int most_nested = 100;

  bool done() const { return at_ == text_.size(); }
  bool next_is(char c) const { return !done() && text_[at_] == c; }
  bool take(char c) { return next_is(c) && ++at_; }
  [[noreturn]] void fail_at(const std::string& what) const {
    fail(fmt::format("the pattern '{}' has {}", printable(text_, 100), what), where_,
         "Crest reads Python's regular expressions without look-around, references and flags. Name the modules "
         "instead.");
  }
  void add(Step step) {
    if (program_.size() >= NamePattern::most_steps) fail_at("too many parts");
    program_.push_back(step);
  }
  // Puts a step before those from `start` on.
  void insert(size_t start, Step step) {
    add({});
    for (size_t i = program_.size() - 1; i > start; --i) program_[i] = moved(program_[i - 1], start, 1);
    program_[start] = step;
  }
  static Step moved(Step step, size_t start, size_t by) {
    if (step.to >= start) step.to += by;
    if (step.other >= start) step.other += by;
    return step;
  }

  void alternatives(int depth) {
    if (depth > most_nested) fail_at("too many nested groups");
    std::vector<size_t> jumps;  // from the end of each alternative but the last
    for (size_t start = program_.size();; start = program_.size()) {
      sequence(depth);
      if (!take('|')) break;
      insert(start, {.kind = Kind::split, .to = start + 1});
      jumps.push_back(program_.size());
      add({.kind = Kind::jump});
      program_[start].other = program_.size();
    }
    for (size_t jump : jumps) program_[jump].to = program_.size();
  }

  void sequence(int depth) {
    while (!done() && !next_is('|') && !next_is(')')) {
      const size_t start = program_.size();
      const bool repeatable = item(depth);
      if (done() || !(next_is('*') || next_is('+') || next_is('?') || counts())) continue;
      if (!repeatable) fail_at("nothing to repeat");
      repeat(start);
    }
  }

  // Whether it was a group, a set or a byte, so it can be repeated.
  bool item(int depth) {
    const char c = text_[at_++];
    switch (c) {
      case '(': group(depth); return true;
      case '[': add({.kind = Kind::set, .set = set()}); return true;
      case '.': add({.kind = Kind::set, .set = bytes_where([](int b) { return b != '\n'; })}); return true;
      case '^': add({.kind = Kind::begin}); return false;
      case '$': add({.kind = Kind::end}); return false;
      case '\\': return escape();
      case '*':
      case '+':
      case '?': fail_at("nothing to repeat");
      default: byte(c); return true;
    }
  }
  void byte(char c) {
    Bytes set;
    set.set(static_cast<unsigned char>(c));
    add({.kind = Kind::set, .set = set});
  }

  void group(int depth) {
    if (take('?')) {
      if (take('P')) {
        if (!take('<')) fail_at("a reference to a group");
        while (!done() && text_[at_] != '>') ++at_;
        if (!take('>')) fail_at("a group without the end of its name");
      } else if (!take(':')) {
        fail_at("look-around or flags: (?" + std::string(done() ? "" : text_.substr(at_, 1)));
      }
    }
    alternatives(depth + 1);
    if (!take(')')) fail_at("'(' without ')'");
  }

  bool escape() {
    if (done()) fail_at("a backslash at its end");
    const char c = text_[at_++];
    if (auto set = class_of(c)) {
      add({.kind = Kind::set, .set = *set});
      return true;
    }
    const bool border = c == 'b' || c == 'B' || c == 'A' || c == 'Z';
    if (border) {
      add({.kind = c == 'b' ? Kind::border : c == 'B' ? Kind::no_border : c == 'A' ? Kind::begin : Kind::end});
      return false;
    }
    byte(escaped(c));
    return true;
  }
  char escaped(char c) const {
    if (!std::isalnum(static_cast<unsigned char>(c))) return c;
    const std::string_view names = "ntrfva", bytes = "\n\t\r\f\v\a";
    if (const size_t i = names.find(c); i != std::string_view::npos) return bytes[i];
    fail_at(fmt::format("\\{}", c));
  }

  Bytes set() {
    Bytes set;
    const bool negated = take('^');
    for (bool first = true;; first = false) {
      if (done()) fail_at("'[' without ']'");
      if (!first && take(']')) break;
      int low = 0;
      if (const auto members = member(low)) {
        set |= *members;
        continue;
      }
      int high = low;
      if (next_is('-') && at_ + 1 < text_.size() && text_[at_ + 1] != ']') {
        ++at_;
        if (member(high)) fail_at("a range of classes");
        if (high < low) fail_at("a range that ends before it begins");
      }
      for (int c = low; c <= high; ++c) set.set(size_t(c));
    }
    return negated ? ~set : set;
  }
  // A class, or else one byte.
  std::optional<Bytes> member(int& byte) {
    const char c = text_[at_++];
    byte = static_cast<unsigned char>(c);
    if (c != '\\') return {};
    if (done()) fail_at("a backslash at its end");
    const char e = text_[at_++];
    if (auto members = class_of(e)) return members;
    byte = static_cast<unsigned char>(e == 'b' ? '\b' : escaped(e));
    return {};
  }

  // Whether {m}, {m,}, {,n} or {m,n} comes next: other braces are bytes.
  bool counts() const {
    if (!next_is('{')) return false;
    const size_t end = text_.find('}', at_);
    if (end == std::string::npos) return false;
    const std::string inside = text_.substr(at_ + 1, end - at_ - 1);
    return inside.find_first_not_of("0123456789,") == std::string::npos && inside.find(',') == inside.rfind(',') &&
           !inside.empty();
  }
  size_t number(size_t otherwise) {
    size_t n = 0, digits = 0;
    for (; !done() && std::isdigit(static_cast<unsigned char>(text_[at_])); ++at_, ++digits) {
      n = n * 10 + size_t(text_[at_] - '0');
      if (n > NamePattern::most_steps) fail_at("too many repetitions");
    }
    return digits ? n : otherwise;
  }

  void repeat(size_t start) {
    constexpr size_t unlimited = SIZE_MAX;
    size_t low = 0, high = unlimited;
    if (take('+')) {
      low = 1;
    } else if (take('?')) {
      high = 1;
    } else if (!take('*')) {
      take('{');
      low = number(0);
      high = take(',') ? number(unlimited) : low;
      take('}');
      if (high < low) fail_at("a range that ends before it begins");
    }
    if (next_is('+')) fail_at("a possessive repetition");
    take('?');  // a lazy repetition matches the same names
    if (!done() && (next_is('*') || next_is('+') || next_is('?') || counts())) fail_at("a repetition of a repetition");
    const std::vector<Step> once(program_.begin() + int64_t(start), program_.end());
    program_.resize(start);
    auto copy = [&] {
      const size_t by = program_.size() - start;
      for (auto& step : once) add(moved(step, start, by));
    };
    for (size_t i = 0; i < low; ++i) copy();
    if (high == unlimited) {
      const size_t split = program_.size();
      add({.kind = Kind::split, .to = split + 1});
      copy();
      add({.kind = Kind::jump, .to = split});
      program_[split].other = program_.size();
      return;
    }
    std::vector<size_t> splits;
    for (size_t i = low; i < high; ++i) {
      splits.push_back(program_.size());
      add({.kind = Kind::split, .to = program_.size() + 1});
      copy();
    }
    for (size_t split : splits) program_[split].other = program_.size();
  }

  const std::string& text_;
  const std::string where_;
  size_t at_ = 0;
  std::vector<Step> program_;
};

NamePattern::NamePattern(const std::string& pattern, const std::string& where)
    : program_(PatternParser(pattern, where).parse()) {}

bool NamePattern::matches(std::string_view name) const {
  std::vector<size_t> now, next, stack;
  std::vector<size_t> seen(program_.size(), SIZE_MAX);  // by step: the last byte there
  auto word_at = [&](size_t i) { return i < name.size() && is_word(static_cast<unsigned char>(name[i])); };
  // Adds the steps reached without reading a byte.
  auto reach = [&](size_t from, size_t at, std::vector<size_t>& list) {
    stack.push_back(from);
    while (!stack.empty()) {
      const size_t i = stack.back();
      stack.pop_back();
      if (std::exchange(seen[i], at) == at) continue;
      const Step& step = program_[i];
      const bool border = (at > 0 && word_at(at - 1)) != word_at(at);
      switch (step.kind) {
        case Kind::split: stack.push_back(step.other); [[fallthrough]];
        case Kind::jump: stack.push_back(step.to); break;
        case Kind::begin:
          if (at == 0) stack.push_back(i + 1);
          break;
        case Kind::end:
          if (at == name.size()) stack.push_back(i + 1);
          break;
        case Kind::border:
        case Kind::no_border:
          if (border == (step.kind == Kind::border)) stack.push_back(i + 1);
          break;
        case Kind::set:
        case Kind::accept: list.push_back(i);
      }
    }
  };
  reach(0, 0, now);
  for (size_t at = 0; at < name.size() && !now.empty(); ++at) {
    next.clear();
    for (size_t i : now)
      if (program_[i].kind == Kind::set && program_[i].set[static_cast<unsigned char>(name[at])])
        reach(i + 1, at + 1, next);
    std::swap(now, next);
  }
  for (size_t i : now)
    if (program_[i].kind == Kind::accept) return true;
  return false;
}

}  // namespace crest
