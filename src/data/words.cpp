#include "data/words.h"

#include <utf8proc.h>

#include <array>
#include <cstdint>

namespace crest {

namespace {

enum class Class : uint8_t { symbol, space, letter, number };

struct Character {
  Class kind;
  uint8_t length;  // bytes
};

// The code points with the property White_Space, which is what \s means in Unicode regular expressions.
bool is_white_space(uint32_t c) {
  return (c >= 9 && c <= 13) || c == 0x20 || c == 0x85 || c == 0xa0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200a) ||
         c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

// Letters and numbers that Unicode 15.1 and 16.0 added: Debian 12's utf8proc (15.0) calls them unassigned, other
// tokenizers know them. Consulted for unassigned code points only.
struct Range {
  uint32_t first, last;
};
constexpr Range newer_letters[] = {{0x1c89, 0x1c8a},   {0xa7cb, 0xa7cd},   {0xa7da, 0xa7dc},   {0x105c0, 0x105f3},
                                   {0x10d4a, 0x10d65}, {0x10d6f, 0x10d85}, {0x10ec2, 0x10ec4}, {0x11380, 0x11389},
                                   {0x1138b, 0x1138b}, {0x1138e, 0x1138e}, {0x11390, 0x113b5}, {0x113b7, 0x113b7},
                                   {0x113d1, 0x113d1}, {0x113d3, 0x113d3}, {0x11bc0, 0x11be0}, {0x13460, 0x143fa},
                                   {0x16100, 0x1611d}, {0x16d40, 0x16d6c}, {0x18cff, 0x18cff}, {0x1e5d0, 0x1e5ed},
                                   {0x1e5f0, 0x1e5f0}, {0x2ebf0, 0x2ee5d}};
constexpr Range newer_numbers[] = {{0x10d40, 0x10d49}, {0x116d0, 0x116e3}, {0x11bf0, 0x11bf9}, {0x16130, 0x16139},
                                   {0x16d70, 0x16d79}, {0x1ccf0, 0x1ccf9}, {0x1e5f1, 0x1e5fa}};

template <size_t n>
bool holds(const Range (&ranges)[n], uint32_t c) {
  for (const Range& r : ranges)
    if (c >= r.first && c <= r.last) return true;
  return false;
}

Class classify(uint32_t c) {
  if (is_white_space(c)) return Class::space;
  switch (utf8proc_category(utf8proc_int32_t(c))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO: return Class::letter;
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO: return Class::number;
    case UTF8PROC_CATEGORY_CN:
      return holds(newer_letters, c) ? Class::letter : holds(newer_numbers, c) ? Class::number : Class::symbol;
    default: return Class::symbol;
  }
}

const std::array<Class, 128> ascii = [] {
  std::array<Class, 128> table{};
  for (uint32_t c = 0; c < 128; ++c) table[c] = classify(c);
  return table;
}();

Character character_at(std::string_view text, size_t i) {
  uint8_t first = uint8_t(text[i]);
  if (first < 128) return {ascii[first], 1};
  int length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4 || text.size() - i < size_t(length)) return {Class::symbol, 1};
  uint32_t c = first & (0xff >> (length + 1));
  for (int k = 1; k < length; ++k) {
    uint8_t next = uint8_t(text[i + k]);
    if ((next & 0xc0) != 0x80) return {Class::symbol, 1};
    c = (c << 6) | (next & 0x3f);
  }
  bool overlong = (length == 3 && c < 0x800) || (length == 4 && c < 0x10000);
  if (overlong || c > 0x10ffff || (c >= 0xd800 && c < 0xe000)) return {Class::symbol, 1};
  return {classify(c), uint8_t(length)};
}

// The class of the character that ends at `end` (> 0). UTF-8 synchronises itself: a valid sequence that ends here is
// one in every forward reading too.
Class class_before(std::string_view text, size_t end) {
  for (size_t length = 1; length <= 4 && length <= end; ++length) {
    Character c = character_at(text.substr(0, end), end - length);
    if (c.length == length) {
      if (length == 1 && uint8_t(text[end - 1]) >= 128) continue;  // perhaps the tail of a longer character
      return c.kind;
    }
  }
  return Class::symbol;
}

size_t end_of_run(std::string_view text, size_t i, Class kind) {
  while (i < text.size()) {
    Character c = character_at(text, i);
    if (c.kind != kind) break;
    i += c.length;
  }
  return i;
}

bool is_safe_cut(std::string_view text, size_t p) {
  uint8_t b = uint8_t(text[p]);
  return b < 128 && ascii[b] == Class::space && class_before(text, p) != Class::space;
}

}  // namespace

size_t next_word(std::string_view text, size_t start) {
  size_t i = start, n = text.size();
  if (text[i] == '\'' && i + 1 < n) {
    char a = text[i + 1], b = i + 2 < n ? text[i + 2] : 0;
    if (a == 's' || a == 't' || a == 'm' || a == 'd') return i + 2;
    if ((a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l')) return i + 3;
  }
  Character c = character_at(text, i);
  if (c.kind != Class::space) return end_of_run(text, i + c.length, c.kind);
  if (text[i] == ' ' && i + 1 < n) {
    Character next = character_at(text, i + 1);
    if (next.kind != Class::space) return end_of_run(text, i + 1 + next.length, next.kind);
  }
  // \s+(?!\S): spaces up to the end, or all but the last before a word; a single one alone is \s+.
  size_t last = i, end = i + c.length;
  while (end < n) {
    Character next = character_at(text, end);
    if (next.kind != Class::space) break;
    last = end;
    end += next.length;
  }
  return end == n || last == i ? end : last;
}

size_t safe_cut_after(std::string_view text, size_t from) {
  for (size_t p = from > 0 ? from : 1; p < text.size(); ++p)
    if (is_safe_cut(text, p)) return p;
  return text.size();
}

size_t last_safe_cut(std::string_view text) {
  for (size_t p = text.size(); p-- > 1;)
    if (is_safe_cut(text, p)) return p;
  return 0;
}

size_t last_character_cut(std::string_view text) {
  size_t n = text.size();
  for (size_t back = 1; back <= 3 && back < n; ++back) {
    uint8_t b = uint8_t(text[n - back]);
    if (b >= 0xc0) {
      size_t length = b >= 0xf0 ? 4 : b >= 0xe0 ? 3 : 2;
      return length > back ? n - back : n;
    }
    if (b < 0x80) return n;
  }
  return n;
}

}  // namespace crest
