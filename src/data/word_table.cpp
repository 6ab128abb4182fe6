#include "data/word_table.h"

#include <cstring>

#include "core/random.h"

namespace crest {

uint64_t hash_bytes(std::string_view s) {
  uint64_t h = s.size() * 0x9E3779B97F4A7C15ull;
  const char* p = s.data();
  size_t n = s.size();
  for (; n >= 8; p += 8, n -= 8) {
    uint64_t x;
    std::memcpy(&x, p, 8);
    h = (h ^ x) * 0xBF58476D1CE4E5B9ull;
    h ^= h >> 32;
  }
  uint64_t tail = 0;
  if (n) std::memcpy(&tail, p, n);
  return mix(h ^ tail);
}

uint32_t WordTable::find(std::string_view word) const {
  if (slots_.empty()) return none;
  uint32_t hash = uint32_t(hash_bytes(word));
  size_t mask = slots_.size() - 1;
  for (size_t i = hash & mask; slots_[i]; i = (i + 1) & mask) {
    const Entry& e = entries_[slots_[i] - 1];
    if (e.hash == hash && e.length == word.size() && !std::memcmp(arena_.data() + e.offset, word.data(), word.size()))
      return slots_[i] - 1;
  }
  return none;
}

uint32_t WordTable::insert(std::string_view word) {
  uint32_t found = find(word);
  if (found != none) return found;
  if ((entries_.size() + 1) * 2 > slots_.size()) grow();
  uint32_t hash = uint32_t(hash_bytes(word));
  entries_.push_back({arena_.size(), uint32_t(word.size()), hash});
  arena_.append(word);
  size_t mask = slots_.size() - 1, i = hash & mask;
  while (slots_[i]) i = (i + 1) & mask;
  slots_[i] = uint32_t(entries_.size());
  return uint32_t(entries_.size() - 1);
}

std::string_view WordTable::word(uint32_t index) const {
  const Entry& e = entries_[index];
  return std::string_view(arena_).substr(e.offset, e.length);
}

void WordTable::clear() {
  arena_.clear();
  entries_.clear();
  slots_.assign(slots_.size(), 0);
}

void WordTable::grow() {
  slots_.assign(slots_.empty() ? 1024 : slots_.size() * 2, 0);
  size_t mask = slots_.size() - 1;
  for (size_t k = 0; k < entries_.size(); ++k) {
    size_t i = entries_[k].hash & mask;
    while (slots_[i]) i = (i + 1) & mask;
    slots_[i] = uint32_t(k + 1);
  }
}

}  // namespace crest
