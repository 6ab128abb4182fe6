#include "lab/table.h"

#include <algorithm>
#include <cstdlib>
#include <set>

#include "core/text.h"
#include "lab/columns.h"

namespace crest::lab {

std::vector<std::string> telling_keys(const std::vector<Row>& rows) {
  std::vector<std::string> keys;
  std::map<std::string, std::set<std::string>> values;
  for (auto& row : rows)
    for (auto& [key, value] : row.keys) values[key].insert(value);
  if (values.count("variant")) keys.push_back("variant");
  for (auto& [key, set] : values) {
    bool some_lack = std::any_of(rows.begin(), rows.end(), [&, &key = key](auto& r) { return !r.keys.count(key); });
    if (key != "variant" && key != "status" && (set.size() > 1 || some_lack)) keys.push_back(key);
  }
  return keys;
}

// * matches any text, ? one character. Linear time, with one backtracking point.
static bool glob(std::string_view text, std::string_view pattern) {
  size_t t = 0, p = 0, star = std::string_view::npos, mark = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++, mark = t;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == text[t])) {
      ++p, ++t;
    } else if (star != std::string_view::npos) {
      p = star + 1, t = ++mark;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

static Value key_value(const std::string& text) {
  char* end = nullptr;
  double x = std::strtod(text.c_str(), &end);
  return !text.empty() && *end == '\0' ? Value::number(x) : Value::of_text(text);
}

// Numbers match by value: 2e-4 is 0.0002.
static bool same_number(const Value& a, const Value& b) {
  return a.type == Value::Type::number && b.type == Value::Type::number && a.x == b.x;
}

bool matches(const std::string& text, const std::string& pattern) {
  for (auto& alternative : split(pattern, '|'))
    if (glob(text, alternative) || same_number(key_value(text), key_value(alternative))) return true;
  return false;
}

bool matches(const Row& row, const std::vector<Filter>& filters) {
  for (auto& f : filters) {
    auto key = row.keys.find(f.key);
    if (key == row.keys.end() || !matches(key->second, f.pattern)) return false;
  }
  return true;
}

Value column_of(const Row& row, const std::string& column) {
  if (auto it = row.columns.find(column); it != row.columns.end()) {
    const Value& v = it->second;
    return v.type == Value::Type::number ? v.in(unit_of_column(column)) : v;
  }
  if (auto it = row.keys.find(column); it != row.keys.end()) return key_value(it->second);
  if (column == "rounds") return Value::number(row.round_ms.empty() ? 1 : double(row.round_ms.size()));
  return Value::missing(row.absent.empty() ? "no " + column + " recorded" : row.absent);
}

}  // namespace crest::lab
