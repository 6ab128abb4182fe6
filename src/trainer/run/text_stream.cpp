#include "run/text_stream.h"

#include <algorithm>
#include <cstdint>

#include "core/text.h"

namespace crest {

namespace {

// Length of a UTF-8 sequence by its lead byte; 0: not a lead byte.
size_t sequence_length(unsigned char c) {
  if (c < 0x80) return 1;
  if (c >= 0xC2 && c <= 0xDF) return 2;
  if (c >= 0xE0 && c <= 0xEF) return 3;
  if (c >= 0xF0 && c <= 0xF4) return 4;
  return 0;
}

// Whether `c` may be byte `at` (1, 2, 3) of a sequence: rejects overlong forms, surrogates, and
// codes above U+10FFFF (RFC 3629).
bool continues(unsigned char lead, size_t at, unsigned char c) {
  if (at > 1) return c >= 0x80 && c <= 0xBF;
  unsigned char low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  unsigned char high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  return c >= low && c <= high;
}

// Bytes at the beginning that are a character, or could begin one.
size_t valid_beginning(std::string_view text, bool* complete) {
  const auto lead = static_cast<unsigned char>(text[0]);
  const size_t length = sequence_length(lead);
  size_t n = std::min<size_t>(length, 1);
  while (n > 0 && n < length && n < text.size() && continues(lead, n, static_cast<unsigned char>(text[n]))) ++n;
  *complete = n > 0 && n == length;
  return n;
}

// Bytes of an incomplete character at the end.
size_t incomplete_tail(std::string_view text) {
  for (size_t n = 1; n <= std::min<size_t>(3, text.size()); ++n) {
    bool complete = true;
    if (valid_beginning(text.substr(text.size() - n), &complete) == n && !complete) return n;
  }
  return 0;
}

}  // namespace

TextStream::TextStream(std::vector<std::string> stops) : stops_(std::move(stops)) {
  std::erase_if(stops_, [](auto& s) { return s.empty(); });
}

std::string TextStream::add(std::string_view bytes) {
  if (stopped_) return "";
  held_ += bytes;
  size_t end = std::string::npos;
  for (auto& s : stops_) end = std::min(end, held_.find(s));
  if (end != std::string::npos) {
    stopped_ = true;
    std::string out = held_.substr(0, end);
    held_.clear();
    return out;
  }
  size_t keep = incomplete_tail(held_);
  for (auto& s : stops_)
    for (size_t n = std::min(s.size() - 1, held_.size()); n > keep; --n)
      if (held_.compare(held_.size() - n, n, s, 0, n) == 0) keep = n;
  std::string out = held_.substr(0, held_.size() - keep);
  held_.erase(0, out.size());
  return out;
}

std::string TextStream::finish() {
  std::string out = std::move(held_);
  held_.clear();
  return out;
}

std::string replace_invalid_utf8(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    bool complete = false;
    const size_t n = std::max<size_t>(1, valid_beginning(text, &complete));
    out += complete ? text.substr(0, n) : std::string_view("\xEF\xBF\xBD");
    text.remove_prefix(n);
  }
  return out;
}

std::string displayable(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    Character c = first_character(text);
    bool line = c.code == '\n' || c.code == '\t';
    out += c.valid && (line || !is_control(c.code)) ? text.substr(0, c.size) : std::string_view("\xEF\xBF\xBD");
    text.remove_prefix(c.size);
  }
  return out;
}

}  // namespace crest
