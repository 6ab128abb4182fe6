#include "data/tokenizer_tables.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <functional>

#include "core/random.h"
#include "data/unicode.h"

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

uint32_t StringTable::find(std::string_view string) const {
  if (slots_.empty()) return none;
  uint32_t hash = uint32_t(hash_bytes(string));
  size_t mask = slots_.size() - 1;
  for (size_t i = hash & mask; slots_[i]; i = (i + 1) & mask) {
    const Entry& e = entries_[slots_[i] - 1];
    if (e.hash == hash && e.length == string.size() &&
        !std::memcmp(arena_.data() + e.offset, string.data(), string.size()))
      return slots_[i] - 1;
  }
  return none;
}

uint32_t StringTable::insert(std::string_view string) {
  uint32_t found = find(string);
  if (found != none) return found;
  if ((entries_.size() + 1) * 2 > slots_.size()) grow();
  uint32_t hash = uint32_t(hash_bytes(string));
  entries_.push_back({arena_.size(), uint32_t(string.size()), hash});
  arena_.append(string);
  size_t mask = slots_.size() - 1, i = hash & mask;
  while (slots_[i]) i = (i + 1) & mask;
  slots_[i] = uint32_t(entries_.size());
  return uint32_t(entries_.size() - 1);
}

std::string_view StringTable::operator[](uint32_t index) const {
  const Entry& e = entries_[index];
  return std::string_view(arena_).substr(e.offset, e.length);
}

void StringTable::clear() {
  arena_.clear();
  entries_.clear();
  slots_.assign(slots_.size(), 0);
}

void StringTable::grow() {
  slots_.assign(slots_.empty() ? 1024 : slots_.size() * 2, 0);
  size_t mask = slots_.size() - 1;
  for (size_t k = 0; k < entries_.size(); ++k) {
    size_t i = entries_[k].hash & mask;
    while (slots_[i]) i = (i + 1) & mask;
    slots_[i] = uint32_t(k + 1);
  }
}

namespace {

constexpr size_t short_pretoken = 48;  // symbols: above it, a heap is faster than scanning for the lowest rank

void merge_short_pretoken(const MergeTable& table, uint32_t* ids, size_t n, std::vector<uint32_t>& out) {
  MergeTable::Merge pairs[short_pretoken];  // of ids[i] and ids[i + 1]
  for (size_t i = 0; i + 1 < n; ++i) pairs[i] = table.find(ids[i], ids[i + 1]);
  while (n > 1) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < n; ++i)
      if (pairs[i].rank < pairs[best].rank) best = i;
    if (pairs[best].rank == MergeTable::no_rank) break;
    ids[best] = pairs[best].result;
    --n;
    for (size_t i = best + 1; i < n; ++i) ids[i] = ids[i + 1];
    for (size_t i = best + 1; i + 1 < n; ++i) pairs[i] = pairs[i + 1];
    if (best > 0) pairs[best - 1] = table.find(ids[best - 1], ids[best]);
    if (best + 1 < n) pairs[best] = table.find(ids[best], ids[best + 1]);
  }
  out.insert(out.end(), ids, ids + n);
}

// Takes 20 bytes a symbol: the longest pre-tokens need most of an encoder's memory.
void merge_long_pretoken(const MergeTable& table, uint32_t* ids, size_t count, std::vector<uint32_t>& out) {
  constexpr uint32_t none = UINT32_MAX;  // no neighbor, and the id of a symbol merged into the one before
  struct Candidate {
    uint32_t rank, at;
    bool operator<(const Candidate& o) const { return rank != o.rank ? rank > o.rank : at > o.at; }  // lowest on top
  };
  auto n = uint32_t(count);
  std::vector<uint32_t> previous(n), next(n);
  std::vector<Candidate> queue;
  queue.reserve(n);
  auto candidate = [&](uint32_t at) {
    if (at == none || next[at] == none) return false;
    auto merge = table.find(ids[at], ids[next[at]]);
    if (merge.rank != MergeTable::no_rank) queue.push_back({merge.rank, at});
    return merge.rank != MergeTable::no_rank;
  };
  for (uint32_t i = 0; i < n; ++i) previous[i] = i ? i - 1 : none, next[i] = i + 1 < n ? i + 1 : none;
  for (uint32_t i = 0; i + 1 < n; ++i) candidate(i);
  std::make_heap(queue.begin(), queue.end());
  while (!queue.empty()) {
    auto [rank, at] = queue.front();
    std::pop_heap(queue.begin(), queue.end());
    queue.pop_back();
    if (ids[at] == none || next[at] == none) continue;
    uint32_t right = next[at];
    auto merge = table.find(ids[at], ids[right]);
    if (merge.rank != rank) continue;  // a neighbor has changed
    ids[at] = merge.result, ids[right] = none;
    next[at] = next[right];
    if (next[at] != none) previous[next[at]] = at;
    for (uint32_t changed : {previous[at], at})
      if (candidate(changed)) std::push_heap(queue.begin(), queue.end());
  }
  for (uint32_t i = 0; i != none; i = next[i]) out.push_back(ids[i]);
}

}  // namespace

MergeTable::MergeTable(size_t expected) {
  size_t size = std::bit_ceil(std::max<size_t>(16, expected * 2));
  mask_ = size - 1;
  keys_.assign(size, free_key);
  merges_.resize(size);
}

void MergeTable::set(uint32_t left, uint32_t right, Merge merge) {
  if ((count_ + 1) * 2 > keys_.size()) {
    MergeTable larger(keys_.size());
    for (size_t i = 0; i < keys_.size(); ++i)
      if (keys_[i] != free_key) larger.set(uint32_t(keys_[i] >> 32), uint32_t(keys_[i]), merges_[i]);
    *this = std::move(larger);
  }
  uint64_t key = uint64_t(left) << 32 | right;
  size_t i = slot(key);
  while (keys_[i] != key && keys_[i] != free_key) i = (i + 1) & mask_;
  if (keys_[i] == free_key) ++count_;
  keys_[i] = key;
  merges_[i] = merge;
}

void merge_pretoken(const MergeTable& table, uint32_t* symbols, size_t count, std::vector<uint32_t>& out) {
  if (count <= short_pretoken)
    merge_short_pretoken(table, symbols, count, out);
  else
    merge_long_pretoken(table, symbols, count, out);
}

void AddedTokens::add(std::string_view text, uint32_t id, Borders borders) {
  if (text.empty() || texts_.find(text) != StringTable::none) return;
  texts_.insert(text);
  ids_.push_back(id);
  borders_.push_back(borders);
  auto& lengths = lengths_[uint8_t(text[0])];
  auto length = uint32_t(text.size());
  auto at = std::lower_bound(lengths.begin(), lengths.end(), length, std::greater<>());
  if (at == lengths.end() || *at != length) lengths.insert(at, length);
}

AddedTokens::Match AddedTokens::find(std::string_view text, size_t from) const {
  if (empty()) return {text.size(), 0, 0};
  for (size_t i = from; i < text.size(); ++i)
    for (uint32_t length : lengths_[uint8_t(text[i])]) {
      if (length > text.size() - i) continue;
      uint32_t found = texts_.find(text.substr(i, length));
      if (found == StringTable::none) continue;
      size_t begin = i, end = i + length;
      if (borders_[found].word &&
          ((i > 0 && is_word_before(text, i)) || (end < text.size() && is_word_at(text, end)))) {
        i = end - 1;
        break;
      }
      while (borders_[found].left && begin > from && class_before(text.substr(from), begin - from) == CharClass::space)
        do --begin;
        while (begin > from && (uint8_t(text[begin]) & 0xc0) == 0x80);
      while (borders_[found].right && end < text.size() && character_at(text, end).kind == CharClass::space)
        end += character_at(text, end).length;
      return {begin, end - begin, ids_[found]};
    }
  return {text.size(), 0, 0};
}

}  // namespace crest
