#include "store/result_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "core/text.h"
#include "store/log_words.h"

namespace crest {

namespace {

constexpr size_t longest_line = 1000, longest_heading = 80;

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

std::string lower(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(), [](char c) { return c >= 'A' && c <= 'Z' ? char(c + 32) : c; });
  return out;
}

// Without the marks of lists, tables and emphasis around it.
std::string_view stripped(std::string_view text) {
  static constexpr std::string_view bullet = "\xE2\x80\xA2", marks = " \t\r|*-`#>_";
  for (bool again = true; again;) {
    again = false;
    while (!text.empty() && marks.find(text.front()) != marks.npos) text.remove_prefix(1);
    if (text.starts_with(bullet)) text.remove_prefix(bullet.size()), again = true;
  }
  while (!text.empty() && marks.find(text.back()) != marks.npos) text.remove_suffix(1);
  return text;
}

class ResultScanner {
 public:
  explicit ResultScanner(std::string_view line) : all_(line), text_(lower(line)) {}

  ScannedResult scan() {
    ScannedResult result;
    if (!label()) return result;
    size_t after = at_;
    bool marked = next() == ':' || next() == '=' || next() == '|' || next() == ',';
    while (at_ < text_.size() && !is_loss_) step();
    row_.out_of_memory = says_out_of_memory();
    bool figures = row_.says_figures() || row_.out_of_memory;
    // "batch 100: loss 2.5, 40 ms" is a line of a log, and "b2 is the baseline" a sentence.
    if (is_loss_ || (!figures && !marked)) return result;
    result.labeled = after > 0;
    if (figures) result.row = row_;
    return result;
  }

 private:
  char at(size_t i) const { return i < text_.size() ? text_[i] : '\0'; }
  char next() {
    spaces();
    return at(at_);
  }
  void spaces() {
    while (at(at_) == ' ' || at(at_) == '\t') ++at_;
  }

  bool label() {
    static constexpr std::string_view words[] = {"micro batch size",
                                                 "micro_batch_size",
                                                 "micro batch",
                                                 "micro_batch",
                                                 "batch size",
                                                 "batch_size",
                                                 "batch",
                                                 "bs",
                                                 "b"};
    for (auto word : words) {
      if (!text_.starts_with(word)) continue;
      at_ = word.size();
      if (next() == '=' || at(at_) == ':') ++at_;
      spaces();
      int64_t batch = 0;
      const char* start = text_.data() + at_;
      auto [end, error] = std::from_chars(start, text_.data() + text_.size(), batch);
      if (error != std::errc() || batch < 1 || batch > 1'000'000'000) return false;
      at_ += size_t(end - start);
      static constexpr std::string_view ends = " \t:=|,";
      if (at_ < text_.size() && ends.find(at(at_)) == ends.npos) return false;
      row_.batch = batch;
      return true;
    }
    return false;
  }

  void step() {
    char c = at(at_);
    if (c == '(')
      parentheses();
    else if (is_digit(c) || (c == '.' && is_digit(at(at_ + 1))))
      number();
    else if (is_letter(c))
      word();
    else
      ++at_;
  }

  void parentheses() {
    size_t end = std::min(text_.find(')', at_), text_.size());
    row_.note += (row_.note.empty() ? "" : "; ") + std::string(all_.substr(at_ + 1, end - at_ - 1));
    at_ = std::min(end + 1, text_.size());
  }

  std::string take_word() {
    size_t start = at_;
    while (is_letter(at(at_)) || at(at_) == '/' || at(at_) == '_') ++at_;
    return text_.substr(start, at_ - start);
  }
  void word() {
    key_ = take_word();
    is_loss_ = is_loss_ || key_ == "loss";
  }

  // A number with its unit: "340 ms", "48 k tok/s", "39GB"; or after its key: "tok/s: 48000".
  void number() {
    size_t start = at_;
    bool is_signed = start > 0 && (at(start - 1) == '+' || at(start - 1) == '-');
    std::string digits;
    for (; is_digit(at(at_)) || at(at_) == '.' || (at(at_) == ',' && is_digit(at(at_ + 1))); ++at_)
      if (at(at_) != ',') digits += at(at_);
    if (at(at_) == 'e' && is_digit(at(at_ + 1)))  // "3.1e5"
      for (digits += text_[at_++]; is_digit(at(at_)); ++at_) digits += at(at_);
    double value = NAN;
    auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (error != std::errc() || end != digits.data() + digits.size() || !(value > 0) || is_signed) return;
    const bool is_rate = log_key(key_with_underscores()).quantity == Quantity::rate;
    const size_t back = at_;
    LogUnit unit = take_unit();
    if (unit.kind == LogUnit::rate && unit.factor > 1) {  // "48 k tok/s", and no other thousands
      const size_t here = at_;
      if (take_unit().kind != LogUnit::rate) at_ = here, unit.kind = is_rate ? unit.kind : LogUnit::other;
    }
    if (unit.kind == LogUnit::other) at_ = back;
    if (unit.kind == LogUnit::time) set(row_.step_ms, value * unit.factor);
    if (unit.kind == LogUnit::rate) set(row_.tokens_per_second, value * unit.factor);
    if (unit.kind == LogUnit::bytes && unit.factor > 1) set(row_.memory_bytes, value * unit.factor);
    if (unit.kind == LogUnit::none && is_rate) set(row_.tokens_per_second, value);
    key_.clear();
  }
  LogUnit take_unit() {
    spaces();
    return log_unit(take_word());
  }
  std::string key_with_underscores() const {
    std::string key = key_;
    std::replace(key.begin(), key.end(), '/', '_');
    return key;
  }
  // The first value wins.
  static void set(double& field, double value) {
    if (std::isnan(field) && std::isfinite(value)) field = value;
  }

  bool says_out_of_memory() const {
    for (std::string_view word : {"oom", "out of memory", "out-of-memory", "outofmemory"}) {
      size_t found = text_.find(word);
      if (found == text_.npos) continue;
      const bool whole = (found == 0 || !is_letter(at(found - 1))) && !is_letter(at(found + word.size()));
      const std::string_view before = std::string_view(text_).substr(0, found);
      bool denied = false;
      for (std::string_view no : {"no ", "not ", "without "}) denied |= before.ends_with(no);
      if ((whole || word == "outofmemory") && !denied) return true;
    }
    return false;
  }

  std::string_view all_;
  std::string text_, key_;
  size_t at_ = 0;
  bool is_loss_ = false;
  ResultRow row_;
};

// With its number or letter, which keeps the order of the text: "B) FP32 + TF32 enabled:".
std::string heading_of(std::string_view line) {
  std::string_view text = stripped(line);
  while (text.ends_with(':')) text.remove_suffix(1);
  return text.size() > longest_heading ? "" : printable(std::string(text), longest_heading);
}

bool is_rule(std::string_view text) {
  return std::none_of(text.begin(), text.end(), [](char c) { return is_letter(c) || is_digit(c); });
}

}  // namespace

ResultRow::ResultRow() : step_ms(NAN), tokens_per_second(NAN), memory_bytes(NAN) {}

bool ResultRow::says_figures() const {
  return !std::isnan(step_ms) || !std::isnan(tokens_per_second) || !std::isnan(memory_bytes);
}

ScannedResult scan_result_line(std::string_view line) {
  std::string_view text = stripped(line);
  if (text.size() > longest_line) return {};
  return ResultScanner(text).scan();
}

void ResultTable::add(const std::string& line, int64_t number) {
  std::string_view text = stripped(line);
  size_t start = line.find_first_not_of(" \t");
  if (start != line.npos && std::string_view(line).substr(start).starts_with("```")) {
    fenced_ = !fenced_, in_rows_ = false;
    if (!fenced_) above_.clear();
    return;
  }
  if (text.empty() || is_rule(text)) return;
  ScannedResult result = scan_result_line(line);
  if (!result.labeled) {
    above_ = heading_of(line), in_rows_ = false;
    return;
  }
  if (!in_rows_) heading_ = above_, in_rows_ = true;
  if (!result.row) {
    if (unreadable++ == 0) first_unreadable = fmt::format("line {}: {}", number, printable(std::string(text), 80));
    return;
  }
  ResultRow& row = *result.row;
  const std::string figures =
      fmt::format("{} {} {} {} {}", row.batch, row.step_ms, row.tokens_per_second, row.memory_bytes, row.out_of_memory);
  if (!seen_.insert(figures).second) {
    ++repeated;
    return;
  }
  row.heading = heading_;
  for (int other = 2; !known_.insert({row.heading, row.batch}).second; ++other)
    row.heading = heading_.empty() ? fmt::format("table {}", other) : fmt::format("{} ({})", heading_, other);
  rows.push_back(row);
}

}  // namespace crest
