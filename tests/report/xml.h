// A small XML checker, enough to see that the output is well formed.
#pragma once
#include <cctype>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace crest::test {

inline size_t count(const std::string& text, const std::string& part) {
  size_t n = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
  return n;
}

// The size of one tag `<...>` at the start of `xml` with its attributes name="value"; 0 when it is
// malformed. (No std::regex: g++ 12 warns inside it under sanitizers.)
inline size_t tag_size(std::string_view xml, std::string& tag_name, bool& closes, bool& empty) {
  size_t i = 1;
  auto at = [&](size_t k) { return k < xml.size() ? xml[k] : '\0'; };
  auto is_name = [&](size_t k) { return std::isalnum(uint8_t(at(k))) || at(k) == '-'; };
  closes = at(i) == '/', i += closes;
  size_t start = i;
  while (is_name(i)) ++i;
  tag_name = xml.substr(start, i - start);
  if (tag_name.empty()) return 0;
  while (at(i) == ' ') {
    start = ++i;
    while (is_name(i)) ++i;
    if (i == start || at(i) != '=' || at(i + 1) != '"') return 0;
    size_t end = xml.find_first_of("\"<", i + 2);
    if (end == std::string_view::npos || xml[end] != '"') return 0;
    i = end + 1;
  }
  empty = at(i) == '/', i += empty;
  return at(i) == '>' ? i + 1 : 0;
}

// Every tag closes in order, every attribute is quoted, every & begins a known entity.
inline bool well_formed(const std::string& xml) {
  std::vector<std::string> open;
  for (size_t i = 0; i < xml.size();) {
    if (xml[i] == '&') {
      bool known = false;
      for (const char* entity : {"&amp;", "&lt;", "&gt;", "&quot;", "&#39;"})
        known = known || xml.compare(i, std::string(entity).size(), entity) == 0;
      if (!known) return false;
    }
    if (xml[i] != '<') {
      ++i;
      continue;
    }
    std::string tag_name;
    bool closes = false, empty = false;
    size_t size = tag_size(std::string_view(xml).substr(i), tag_name, closes, empty);
    if (size == 0) return false;
    if (closes && (open.empty() || open.back() != tag_name)) return false;
    if (closes) open.pop_back();
    if (!closes && !empty) open.push_back(tag_name);
    i += size;
  }
  return open.empty();
}

}  // namespace crest::test
