// An index of the names in use. It is rebuilt for every pass, so it makes no allocation per name.
#pragma once
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace crest {

class Names {
 public:
  Names() = default;
  Names(const Names&) = delete;  // entries refer to text_
  Names& operator=(const Names&) = delete;
  void reserve(size_t names);
  // False if the name exists already.
  bool add(std::string_view name) { return find_or_add(name).second; }
  // Adds `base`, or base.1, base.2, ... if the name is taken, and returns it.
  std::string add_unique(std::string_view base);

 private:
  struct Entry {
    size_t hash;
    std::string_view name;
    int next = 1;  // suffix to try
  };
  std::pair<size_t, bool> find_or_add(std::string_view name);  // index of the entry, and whether it is new
  std::string_view keep(std::string_view name);

  std::vector<Entry> entries_;
  std::vector<uint32_t> slots_;  // open addressing: index of an entry + 1, 0 for none
  std::deque<std::string> text_;
};

}  // namespace crest
