#include "data/merge_table.h"

#include <algorithm>
#include <bit>
#include <queue>

namespace crest {

namespace {

constexpr size_t short_word = 48;  // symbols: above it a heap beats scanning for the lowest rank

void merge_short_word(const MergeTable& table, uint32_t* ids, size_t n, std::vector<uint32_t>& out) {
  MergeTable::Merge pairs[short_word];  // of ids[i] and ids[i + 1]
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

void merge_long_word(const MergeTable& table, const uint32_t* ids, size_t count, std::vector<uint32_t>& out) {
  struct Symbol {
    uint32_t id;
    int64_t previous, next;  // -1 = none
    bool merged = false;     // into the one before
  };
  struct Candidate {
    uint32_t rank, result;
    int64_t at;
    bool operator<(const Candidate& o) const { return rank != o.rank ? rank > o.rank : at > o.at; }  // lowest on top
  };
  int64_t n = int64_t(count);
  std::vector<Symbol> symbols(count);
  std::priority_queue<Candidate> queue;
  auto push = [&](int64_t at) {
    if (at < 0 || symbols[at].next < 0) return;
    auto merge = table.find(symbols[at].id, symbols[symbols[at].next].id);
    if (merge.rank != MergeTable::no_rank) queue.push({merge.rank, merge.result, at});
  };
  for (int64_t i = 0; i < n; ++i) symbols[i] = {ids[i], i - 1, i + 1 < n ? i + 1 : -1};
  for (int64_t i = 0; i + 1 < n; ++i) push(i);
  while (!queue.empty()) {
    Candidate top = queue.top();
    queue.pop();
    Symbol& left = symbols[top.at];
    if (left.merged || left.next < 0) continue;
    Symbol& right = symbols[left.next];
    if (table.find(left.id, right.id).rank != top.rank) continue;  // a neighbour changed since
    left.id = top.result;
    right.merged = true;
    left.next = right.next;
    if (left.next >= 0) symbols[left.next].previous = top.at;
    push(left.previous);
    push(top.at);
  }
  for (int64_t i = 0; i >= 0; i = symbols[i].next) out.push_back(symbols[i].id);
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

void merge_word(const MergeTable& table, uint32_t* symbols, size_t count, std::vector<uint32_t>& out) {
  if (count <= short_word)
    merge_short_word(table, symbols, count, out);
  else
    merge_long_word(table, symbols, count, out);
}

}  // namespace crest
