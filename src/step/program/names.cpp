#include "program/names.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <functional>

namespace crest {

void Names::reserve(size_t names) {
  entries_.reserve(names);
  if (2 * names <= slots_.size()) return;
  slots_.assign(std::bit_ceil(2 * names + 64), 0);
  for (size_t e = 0; e < entries_.size(); ++e) {
    size_t slot = entries_[e].hash & (slots_.size() - 1);
    while (slots_[slot]) slot = (slot + 1) & (slots_.size() - 1);
    slots_[slot] = uint32_t(e + 1);
  }
}

std::pair<size_t, bool> Names::find_or_add(std::string_view name) {
  if (2 * entries_.size() >= slots_.size()) reserve(2 * entries_.size() + 16);
  size_t hash = std::hash<std::string_view>()(name), slot = hash & (slots_.size() - 1);
  for (; slots_[slot]; slot = (slot + 1) & (slots_.size() - 1))
    if (const Entry& e = entries_[slots_[slot] - 1]; e.hash == hash && e.name == name) return {slots_[slot] - 1, false};
  entries_.push_back({hash, keep(name)});
  slots_[slot] = uint32_t(entries_.size());
  return {entries_.size() - 1, true};
}

std::string Names::add_unique(std::string_view base) {
  auto [index, added] = find_or_add(base);
  if (added) return std::string(base);
  for (;;) {
    std::string candidate = fmt::format("{}.{}", base, entries_[index].next++);
    if (add(candidate)) return candidate;
  }
}

// A copy with a stable address: values are renamed while a pass runs.
std::string_view Names::keep(std::string_view name) {
  if (text_.empty() || text_.back().size() + name.size() > text_.back().capacity()) {
    text_.emplace_back();
    text_.back().reserve(std::max<size_t>(name.size(), 1 << 16));
  }
  std::string& block = text_.back();
  block += name;
  return std::string_view(block).substr(block.size() - name.size());
}

}  // namespace crest
