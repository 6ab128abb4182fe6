#include "data/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <vector>

namespace crest {

namespace {

// Pages of 256 code points; equal pages are stored once.
class ClassTable {
 public:
  ClassTable() {
    std::vector<CharClass> all;
    all.reserve(0x110000);
    for (const char* p = unicode_class_runs; *p;) {
      CharClass kind = class_of(*p++);
      char* end = nullptr;
      size_t count = *p >= '0' && *p <= '9' ? std::strtoul(p, &end, 10) : 1;
      if (end) p = end;
      all.insert(all.end(), count, kind);
    }
    all.resize(0x110000, CharClass::symbol);
    for (size_t page = 0; page < pages_.size(); ++page) {
      const CharClass* content = all.data() + page * 256;
      size_t known = 0;
      while (known < classes_.size() && std::memcmp(&classes_[known], content, 256) != 0) known += 256;
      if (known == classes_.size()) classes_.insert(classes_.end(), content, content + 256);
      pages_[page] = uint32_t(known);
    }
  }
  CharClass operator[](uint32_t c) const { return classes_[pages_[c >> 8] + (c & 255)]; }

 private:
  static CharClass class_of(char letter) {
    switch (letter) {
      case 's': return CharClass::space;
      case 'U': return CharClass::upper;
      case 'l': return CharClass::lower;
      case 'o': return CharClass::letter;
      case 'm': return CharClass::mark;
      case 'n': return CharClass::number;
      default: return CharClass::symbol;
    }
  }
  std::array<uint32_t, 0x1100> pages_{};
  std::vector<CharClass> classes_;
};

// Created on first use: other tables are made from it before main() begins, in any order.
const ClassTable& classes() {
  static const ClassTable table;
  return table;
}

struct CodePoint {
  uint32_t value;
  uint8_t length;  // 0: not valid UTF-8
};

CodePoint code_point_at(std::string_view text, size_t i) {
  uint8_t first = uint8_t(text[i]);
  if (first < 128) return {first, 1};
  int length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4 || text.size() - i < size_t(length)) return {0, 0};
  uint32_t c = first & (0xff >> (length + 1));
  for (int k = 1; k < length; ++k) {
    uint8_t next = uint8_t(text[i + k]);
    if ((next & 0xc0) != 0x80) return {0, 0};
    c = (c << 6) | (next & 0x3f);
  }
  bool overlong = (length == 3 && c < 0x800) || (length == 4 && c < 0x10000);
  if (overlong || c > 0x10ffff || (c >= 0xd800 && c < 0xe000)) return {0, 0};
  return {c, uint8_t(length)};
}

// Characters with another normalization since Unicode 10. `tokenizers` normalizes by Unicode 9.0:
// there they are unassigned, so they neither move nor compose, and vocabularies were trained this
// way. This list fixes the behavior for any version of utf8proc.
struct Range {
  uint32_t first, last;
};
constexpr Range fixed[] = {
    {0x7fd, 0x7fd},     {0x897, 0x89f},     {0x8ca, 0x8d3},     {0x9fe, 0x9fe},     {0xc3c, 0xc3c},
    {0xd3b, 0xd3c},     {0xeba, 0xeba},     {0x1715, 0x1715},   {0x1abf, 0x1aff},   {0x1df6, 0x1dfa},
    {0x32ff, 0x32ff},   {0xa7f1, 0xa7f4},   {0xa82c, 0xa82c},   {0xab69, 0xab69},   {0x105c0, 0x105ff},
    {0x10781, 0x107ba}, {0x10d24, 0x10d27}, {0x10d40, 0x10d8f}, {0x10eab, 0x10eac}, {0x10efa, 0x10eff},
    {0x10f46, 0x10f50}, {0x10f82, 0x10f85}, {0x11070, 0x11070}, {0x1133b, 0x1133b}, {0x11380, 0x113ff},
    {0x1145e, 0x1145e}, {0x11839, 0x1183a}, {0x11930, 0x11930}, {0x11938, 0x11938}, {0x1193d, 0x1193e},
    {0x11943, 0x11943}, {0x119e0, 0x119e0}, {0x11a34, 0x11a34}, {0x11a47, 0x11a47}, {0x11a99, 0x11a99},
    {0x11d42, 0x11d42}, {0x11d44, 0x11d45}, {0x11d97, 0x11d97}, {0x11f41, 0x11f42}, {0x16100, 0x1613f},
    {0x16d40, 0x16d7f}, {0x16ff0, 0x16ff1}, {0x1ccd6, 0x1ccf9}, {0x1e030, 0x1e06d}, {0x1e08f, 0x1e08f},
    {0x1e130, 0x1e136}, {0x1e2ae, 0x1e2ae}, {0x1e2ec, 0x1e2ef}, {0x1e4ec, 0x1e4ef}, {0x1e5ee, 0x1e5ef},
    {0x1f16c, 0x1f16c}, {0x1fbf0, 0x1fbf9}};

bool is_fixed(uint32_t c) {
  auto* range =
      std::lower_bound(std::begin(fixed), std::end(fixed), c, [](const Range& r, uint32_t v) { return r.last < v; });
  return range != std::end(fixed) && range->first <= c;
}

constexpr int nfc_options = UTF8PROC_STABLE | UTF8PROC_COMPOSE;

// Appends valid UTF-8, normalized as the options of utf8proc say.
void append_mapped(std::string_view text, int options, std::string& out) {
  utf8proc_uint8_t* mapped = nullptr;
  auto length = utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()), utf8proc_ssize_t(text.size()),
                             &mapped, utf8proc_option_t(options));
  if (length >= 0)
    out.append(reinterpret_cast<const char*>(mapped), size_t(length));
  else
    out.append(text);
  std::free(mapped);
}

// The same of any bytes: invalid ones and characters of later Unicode versions divide the text.
void append_normalized(std::string_view text, int options, std::string& out) {
  for (size_t from = 0; from < text.size();) {
    size_t to = from;
    CodePoint c{0, 1};
    for (; to < text.size(); to += c.length) {
      c = code_point_at(text, to);
      if (!c.length || is_fixed(c.value)) break;
    }
    if (to > from) append_mapped(text.substr(from, to - from), options, out);
    size_t kept = to < text.size() ? std::max<size_t>(c.length, 1) : 0;
    out.append(text.substr(to, kept));
    from = to + kept;
  }
}

}  // namespace

CharacterOfClass character_at(std::string_view text, size_t i) {
  CodePoint c = code_point_at(text, i);
  return c.length ? CharacterOfClass{classes()[c.value], c.length} : CharacterOfClass{CharClass::symbol, 1};
}

// UTF-8 is self-synchronizing: a valid sequence with its end here is also valid when read forward.
// Length 0: not valid UTF-8.
static CodePoint code_point_before(std::string_view text, size_t end) {
  for (size_t length = 1; length <= 4 && length <= end; ++length) {
    CodePoint c = code_point_at(text.substr(0, end), end - length);
    if (c.length == length) return c;
  }
  return {0, 0};
}

CharClass class_before(std::string_view text, size_t end) {
  const CodePoint c = code_point_before(text, end);
  return c.length ? classes()[c.value] : CharClass::symbol;
}

// Of symbols: connectors, joiners, and letters in circles and squares. Of numbers, digits and
// numerals such as Roman ones, but no fractions.
static bool is_word(CodePoint c) {
  static constexpr Range symbols[] = {{0x5f, 0x5f},       {0x200c, 0x200d},   {0x203f, 0x2040},  {0x2054, 0x2054},
                                      {0x24b6, 0x24e9},   {0xfe33, 0xfe34},   {0xfe4d, 0xfe4f},  {0xff3f, 0xff3f},
                                      {0x1f130, 0x1f149}, {0x1f150, 0x1f169}, {0x1f170, 0x1f189}};
  if (c.length == 0) return false;
  const CharClass kind = classes()[c.value];
  if (kind == CharClass::number) return utf8proc_category(utf8proc_int32_t(c.value)) != UTF8PROC_CATEGORY_NO;
  if (kind != CharClass::symbol) return kind != CharClass::space;
  return std::any_of(std::begin(symbols), std::end(symbols),
                     [&](const Range& r) { return r.first <= c.value && c.value <= r.last; });
}
bool is_word_at(std::string_view text, size_t i) { return is_word(code_point_at(text, i)); }
bool is_word_before(std::string_view text, size_t end) { return is_word(code_point_before(text, end)); }

bool normalize_nfc(std::string_view text, std::string& out) {
  // Nothing below U+0300 composes or decomposes on its own. So only stretches with a lead byte of
  // 0xcc or more are examined: from the character before (it may be the base of a mark) to the next
  // ASCII character.
  std::string result;
  size_t done = 0;
  bool changed = false;
  for (size_t i = 0; i < text.size(); ++i) {
    if (uint8_t(text[i]) < 0xcc) continue;
    size_t start = i;
    while (start > done && uint8_t(text[start - 1]) >= 0x80) --start;
    if (start > done) --start;
    size_t end = i;
    while (end < text.size() && uint8_t(text[end]) >= 0x80) ++end;
    result.append(text.substr(done, start - done));
    append_normalized(text.substr(start, end - start), nfc_options, result);
    done = end;
    i = end > i ? end - 1 : i;
    changed = true;
  }
  if (!changed) return false;
  result.append(text.substr(done));
  if (result == text) return false;
  out = std::move(result);
  return true;
}

bool normalize(UnicodeForm form, std::string_view text, std::string& out) {
  if (std::all_of(text.begin(), text.end(), [](char c) { return uint8_t(c) < 0x80; })) return false;
  int options = UTF8PROC_STABLE | (form == UnicodeForm::nfkc ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE);
  if (form != UnicodeForm::nfd) options |= UTF8PROC_COMPAT;
  std::string result;
  append_normalized(text, options, result);
  if (result == text) return false;
  out = std::move(result);
  return true;
}

// Letters of Unicode 16 and 17, missing in older versions of utf8proc. U+0130 is the only one with
// a lower case of two characters.
static uint32_t lower(uint32_t c) {
  constexpr struct {
    uint32_t first, last, lower;
  } later[] = {{0x1c89, 0x1c89, 0x1c8a},   {0xa7cb, 0xa7cb, 0x264},  {0xa7cc, 0xa7cc, 0xa7cd},
               {0xa7ce, 0xa7ce, 0xa7cf},   {0xa7d2, 0xa7d2, 0xa7d3}, {0xa7d4, 0xa7d4, 0xa7d5},
               {0xa7da, 0xa7da, 0xa7db},   {0xa7dc, 0xa7dc, 0x19b},  {0x10d50, 0x10d65, 0x10d70},
               {0x16ea0, 0x16eb8, 0x16ebb}};
  for (auto& l : later)
    if (c >= l.first && c <= l.last) return l.lower + (c - l.first);
  return uint32_t(utf8proc_tolower(utf8proc_int32_t(c)));
}

std::string lowercase(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size();) {
    uint8_t first = uint8_t(text[i]);
    if (first < 128) {
      out += char(first >= 'A' && first <= 'Z' ? first + 32 : first);
      ++i;
      continue;
    }
    CodePoint c = code_point_at(text, i);
    utf8proc_uint8_t bytes[4];
    if (!c.length) {
      out += text[i++];
    } else if (c.value == 0x130) {
      out += "i\xcc\x87";
    } else {
      auto size = utf8proc_encode_char(utf8proc_int32_t(lower(c.value)), bytes);
      out.append(reinterpret_cast<const char*>(bytes), size_t(size));
    }
    i += c.length;
  }
  return out;
}

std::string capitalize(std::string_view text) {
  const CodePoint c = text.empty() ? CodePoint{} : code_point_at(text, 0);
  if (!c.length) return lowercase(text);
  utf8proc_uint8_t bytes[4];
  const auto size = utf8proc_encode_char(utf8proc_totitle(utf8proc_int32_t(c.value)), bytes);
  return std::string(reinterpret_cast<const char*>(bytes), size_t(size)) + lowercase(text.substr(c.length));
}

}  // namespace crest
