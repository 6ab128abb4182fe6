#include "data/python_text.h"

#include "core/text.h"
#include "data/unicode.h"

namespace crest {

namespace {

// Four control characters are white space for Python, and not for Unicode.
bool is_separator(char c) { return c >= '\x1c' && c <= '\x1f'; }

}  // namespace

bool is_space_at(std::string_view text, size_t i) {
  return is_separator(text[i]) || character_at(text, i).kind == CharClass::space;
}

std::string_view strip_left(std::string_view text) {
  size_t begin = 0;
  while (begin < text.size() && is_space_at(text, begin)) begin += character_at(text, begin).length;
  return text.substr(begin);
}

std::string_view strip_right(std::string_view text) {
  size_t end = text.size();
  while (end > 0 && (is_separator(text[end - 1]) || class_before(text, end) == CharClass::space)) {
    do --end;
    while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80);  // the middle of a character
  }
  return text.substr(0, end);
}

std::string_view strip(std::string_view text) { return strip_right(strip_left(text)); }

size_t characters(std::string_view text) {
  size_t n = 0;
  for (; !text.empty(); ++n) text.remove_prefix(first_character(text).size);
  return n;
}

}  // namespace crest
