// Attributes of an instruction: a few named numbers or strings, sorted by name.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace crest {

using AttrValue = std::variant<int64_t, double, std::string>;

class Attrs {
 public:
  struct Entry {
    std::string_view key;  // interned, lives as long as the process
    AttrValue value;
    bool operator==(const Entry&) const = default;
  };

  bool has(std::string_view key) const { return find(key) != nullptr; }
  // The value of a required attribute (throws an internal error if absent), or with a default.
  int64_t integer(std::string_view key) const;
  int64_t integer(std::string_view key, int64_t otherwise) const;
  double number(std::string_view key) const;
  double number(std::string_view key, double otherwise) const;
  const std::string& text(std::string_view key) const;

  Attrs& set(std::string_view key, int64_t value);
  Attrs& set(std::string_view key, int value) { return set(key, int64_t(value)); }
  Attrs& set(std::string_view key, bool value) { return set(key, int64_t(value)); }
  Attrs& set(std::string_view key, double value);
  Attrs& set(std::string_view key, std::string_view value);
  Attrs& set(std::string_view key, const char* value) { return set(key, std::string_view(value)); }
  void erase(std::string_view key);

  const std::vector<Entry>& entries() const { return entries_; }
  bool operator==(const Attrs&) const = default;

 private:
  const AttrValue* find(std::string_view key) const;
  Attrs& put(std::string_view key, AttrValue value);
  std::vector<Entry> entries_;
};

}  // namespace crest
