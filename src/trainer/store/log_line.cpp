#include "store/log_line.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "store/log_words.h"

namespace crest {

LogLine::LogLine()
    : loss(NAN),
      val_loss(NAN),
      lr(NAN),
      grad_norm(NAN),
      step_ms(NAN),
      elapsed_ms(NAN),
      tokens_per_second(NAN),
      memory_bytes(NAN),
      mfu(NAN),
      steps_per_second(NAN) {}

static bool said(double x) { return !std::isnan(x); }

bool LogLine::says_step() const {
  return has_loss || said(val_loss) || said(step_ms) || said(elapsed_ms) || said(tokens_per_second);
}
bool LogLine::says_nothing() const { return !says_step() && !said(memory_bytes) && !said(steps_per_second); }

namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }

class Scanner {
 public:
  explicit Scanner(std::string_view text) : text_(text) {}

  LogLine scan() {
    while (at_ < text_.size()) {
      char c = text_[at_];
      if (c == '\x1b')
        skip_escape();
      else if (is_digit(c) || (is_sign_or_point(c) && is_digit(at(number_start()))))
        number();
      else if (is_letter(c))
        word();
      else
        punctuation(c);
    }
    return line_;
  }

 private:
  char at(size_t i) const { return i < text_.size() ? text_[i] : '\0'; }
  char before() const { return at_ > 0 ? text_[at_ - 1] : ' '; }
  void skip_spaces() {
    while (at(at_) == ' ' || at(at_) == '\t') ++at_;
  }

  // A sign counts only where a number can start: not inside "2026-01-31".
  bool is_sign_or_point(char c) const {
    bool inside = is_digit(before()) || is_letter(before());
    return c == '.' ? !inside : (c == '-' || c == '+') && !inside;
  }
  size_t number_start() const {
    size_t i = at_;
    if (text_[i] == '-' || text_[i] == '+') ++i;
    return at(i) == '.' ? i + 1 : i;
  }

  // Terminal colors: ESC [ ... letter.
  void skip_escape() {
    ++at_;
    if (at(at_) != '[') return;
    for (++at_; at_ < text_.size() && !(text_[at_] >= '@' && text_[at_] <= '~');) ++at_;
    ++at_;
  }

  void punctuation(char c) {
    ++at_;
    if (c == '{') line_.braces = true;
    // These can be between a key and its value, or around either; anything else ends the key.
    static constexpr std::string_view links = " \t\"'=:([{";
    bool dash = c == '-' && before() == ' ' && at(at_) == ' ';
    if (dash || links.find(c) == std::string_view::npos) clear();
  }
  void clear() {
    words_.clear();
    percent_ = NAN;
  }

  std::string take_word() {
    size_t start = at_;
    auto inner = [&](char c) { return c == '/' || c == '-' || c == '.'; };
    while (is_letter(at(at_)) || is_digit(at(at_)) || (inner(at(at_)) && is_letter(at(at_ + 1)))) ++at_;
    std::string word(text_.substr(start, std::min(at_ - start, size_t(60))));
    std::transform(word.begin(), word.end(), word.begin(), [](char c) { return c >= 'A' && c <= 'Z' ? c + 32 : c; });
    return word;
  }

  void word() {
    std::string w = take_word();
    if (w == "nan" || w == "inf" || w == "none" || w == "null") return assign(NAN, {LogUnit::none});
    if (w == "true" || w == "false") return assign(w == "true", {LogUnit::none});
    if (w == "mfu" && said(percent_)) {  // "50.2% bf16 MFU"
      set(line_.mfu, percent_);
      return clear();
    }
    if (words_.size() < 8) words_.push_back(w);
  }

  void number() {
    bool first = text_.find_first_not_of(" \t") == at_, whole = true;
    double value = take_number(whole);
    if (at(at_) == '/' && is_digit(at(at_ + 1))) {  // "3/1000": the second number is the last step
      ++at_;
      bool ignored;
      take_number(ignored);
      if (bar_follows() && whole && counts(value)) line_.bar = int64_t(value);
    }
    if (first && whole) leading_ = value;
    LogUnit unit = log_unit(take_unit());
    whole_ = whole && unit.kind == LogUnit::none;
    assign(value * unit.factor, unit);
    if (unit.kind == LogUnit::percent) percent_ = value * unit.factor;
  }

  // " [01:00<09:00, 8.33it/s]": a progress bar of tqdm.
  bool bar_follows() const {
    size_t i = at_;
    while (at(i) == ' ') ++i;
    return at(i) == '[' && is_digit(at(i + 1)) && is_digit(at(i + 2)) && at(i + 3) == ':';
  }

  // Digits may be in groups of three: "1,234,567".
  double take_number(bool& whole) {
    std::string digits;
    if (text_[at_] == '-' || text_[at_] == '+') {
      if (text_[at_] == '-') digits = "-";
      ++at_;
    }
    size_t start = at_;
    auto run = [&] {
      while (is_digit(at(at_)) && digits.size() < 400) digits += text_[at_++];
      while (is_digit(at(at_))) ++at_;
    };
    run();
    while (at_ - start <= 3 && at(at_) == ',' && group_follows()) {
      ++at_;
      run();
      start = at_;
    }
    if (at(at_) == '.' && is_digit(at(at_ + 1))) {
      whole = false;
      digits += text_[at_++];
      run();
    } else if (at(at_) == '.') {
      ++at_;
    }
    size_t e = at_ + 1 + (at(at_ + 1) == '-' || at(at_ + 1) == '+');
    if ((at(at_) == 'e' || at(at_) == 'E') && is_digit(at(e))) {
      whole = false;
      digits.append(text_.substr(at_, e - at_));
      at_ = e;
      if (digits[digits.size() - 1] == '+') digits.pop_back();
      run();
    }
    double value = NAN;
    std::from_chars(digits.data(), digits.data() + digits.size(), value);
    return std::isfinite(value) ? value : NAN;
  }
  bool group_follows() const {
    return is_digit(at(at_ + 1)) && is_digit(at(at_ + 2)) && is_digit(at(at_ + 3)) && !is_digit(at(at_ + 4));
  }

  // The text right after a number, or a known unit after a space, unless it is the key of the next
  // number.
  std::string take_unit() {
    if (at(at_) == '%') return ++at_, "%";
    if (is_letter(at(at_))) return take_word();
    size_t back = at_;
    skip_spaces();
    if (at_ > back && is_letter(at(at_))) {
      std::string word = take_word();
      size_t end = at_;
      skip_spaces();
      char next = at(at_);
      at_ = end;
      if (log_unit(word).kind != LogUnit::other && next != ':' && next != '=' && !is_digit(next)) return word;
    }
    at_ = back;
    return "";
  }

  // The quantity named by the words before a number, without logger prefixes.
  LogKey key() const {
    for (size_t from = 0; from < words_.size(); ++from) {
      std::string phrase;
      for (size_t i = from; i < words_.size(); ++i) phrase += (i > from ? "_" : "") + words_[i];
      for (char& c : phrase)
        if (c == '/' || c == '-' || c == '.') c = '_';
      if (LogKey k = log_key(phrase); k.quantity != Quantity::none) return k;
      if (!is_log_noise(words_[from])) break;
    }
    return {};
  }

  // The first value wins.
  static void set(double& field, double value) {
    if (!said(field) && std::isfinite(value)) field = value;
  }
  // Whether a number can be a step.
  static bool counts(double value) { return value >= 0 && value < 1e15; }
  void set_step(double value) {
    if (!line_.step && counts(value)) line_.step = int64_t(value);
  }
  // A time or size: its unit follows it or is part of its key; without one the value is unknown.
  void set_measured(double& field, double value, LogUnit unit, LogUnit::Kind kind, double key_factor) {
    if (unit.kind == kind)
      set(field, value);
    else if (unit.kind == LogUnit::none && key_factor > 0)
      set(field, value * key_factor);
    else if (said(value))
      ++line_.without_unit;
  }
  void set_loss(double value) {
    if (!line_.has_loss) line_.loss = value;
    line_.has_loss = true;
  }

  void assign(double value, LogUnit unit) {
    LogKey k = key();
    bool bare = words_.empty(), one = words_.size() == 1;
    bool only_train = one && words_[0] == "train", only_val = one && words_[0] == "val";
    clear();
    if (bare) {  // llm.c: "| 100.50 ms | 50.2% bf16 MFU | 520000 tok/s"
      if (unit.kind == LogUnit::time && unit.factor == 1) set(line_.step_ms, value);
      if (unit.kind == LogUnit::rate && unit.factor == 1) set(line_.tokens_per_second, value);
      return;
    }
    bool plain = unit.kind == LogUnit::none;
    switch (k.quantity) {
      case Quantity::none: break;
      case Quantity::step:
        if (whole_) set_step(value);
        break;
      case Quantity::loss:
      case Quantity::val_loss:
        if (!plain || (only_train && leading_ < 0)) break;
        k.quantity == Quantity::loss ? set_loss(value) : set(line_.val_loss, value);
        if (only_train || only_val) set_step(leading_);  // "250 val 3.28"
        break;
      case Quantity::lr:
        if (plain) set(line_.lr, value);
        break;
      case Quantity::grad_norm:
        if (plain) set(line_.grad_norm, value);
        break;
      case Quantity::step_time: set_measured(line_.step_ms, value, unit, LogUnit::time, k.factor); break;
      case Quantity::elapsed: set_measured(line_.elapsed_ms, value, unit, LogUnit::time, k.factor); break;
      case Quantity::memory: set_measured(line_.memory_bytes, value, unit, LogUnit::bytes, k.factor); break;
      case Quantity::rate:
        if (plain || unit.kind == LogUnit::rate) set(line_.tokens_per_second, value);
        break;
      case Quantity::mfu:
        if (value > 0) set(line_.mfu, plain && value > 1 ? value / 100 : value);
        break;
      case Quantity::steps_per_second: set(line_.steps_per_second, value); break;
      case Quantity::skipped: line_.skipped = value == 1; break;
    }
  }

  std::string_view text_;
  size_t at_ = 0;
  std::vector<std::string> words_;  // words since the last number or separator
  double percent_ = NAN;            // the previous number as a share, if it was "50.2%"
  double leading_ = -1;             // the integer at the start of the line
  bool whole_ = false;              // the current number has no point, exponent or unit
  LogLine line_;
};

}  // namespace

LogLine scan_log_line(std::string_view line) { return Scanner(line).scan(); }

}  // namespace crest
