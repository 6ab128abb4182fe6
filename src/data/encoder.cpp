// Encoding: words by the split rule, then the lowest-ranked merge of a word again and again.
#include <omp.h>

#include <algorithm>
#include <exception>
#include <queue>

#include "data/tokenizer.h"
#include "data/words.h"

namespace crest {

namespace {
constexpr size_t short_word = 48;          // bytes: above it a heap beats scanning for the lowest rank
constexpr size_t chunk_bytes = 256 << 10;  // of one task; smaller texts are not spread
constexpr size_t cache_limit = 48 << 20;   // bytes a thread
}  // namespace

// Words seen before and their tokens.
struct Encoder::Cache {
  WordTable words;
  std::vector<uint32_t> tokens;
  std::vector<uint64_t> ends;  // of word i's tokens
};

Encoder::Encoder(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {
  caches_.emplace_back(std::make_unique<Cache>());
}

Encoder::~Encoder() = default;

void Encoder::append(std::string_view text, std::vector<uint32_t>& out) {
  if (tokenizer_.merges_.empty()) {  // bytes
    out.reserve(out.size() + text.size());
    for (char c : text) out.push_back(tokenizer_.byte_ids_[uint8_t(c)]);
    return;
  }
  std::vector<std::string_view> chunks;
  while (text.size() > chunk_bytes * 3 / 2) {
    size_t cut = safe_cut_after(text, chunk_bytes);
    chunks.push_back(text.substr(0, cut));
    text.remove_prefix(cut);
  }
  if (chunks.empty()) return encode_chunk(text, out, *caches_[0]);
  if (!text.empty()) chunks.push_back(text);
  size_t threads = std::max(1, omp_get_max_threads());
  while (caches_.size() < threads) caches_.emplace_back(std::make_unique<Cache>());
  std::vector<std::vector<uint32_t>> parts(chunks.size());
  std::exception_ptr error;
#pragma omp parallel for schedule(dynamic, 1) num_threads(int(threads))
  for (size_t i = 0; i < chunks.size(); ++i) {
    try {
      parts[i].reserve(chunks[i].size() / 3);
      encode_chunk(chunks[i], parts[i], *caches_[omp_get_thread_num()]);
    } catch (...) {
#pragma omp critical
      error = std::current_exception();
    }
  }
  if (error) std::rethrow_exception(error);
  for (auto& part : parts) out.insert(out.end(), part.begin(), part.end());
}

void Encoder::encode_chunk(std::string_view text, std::vector<uint32_t>& out, Cache& cache) const {
  for (size_t start = 0, end; start < text.size(); start = end) {
    end = next_word(text, start);
    std::string_view word = text.substr(start, end - start);
    if (word.size() == 1) {
      out.push_back(tokenizer_.byte_ids_[uint8_t(word[0])]);
      continue;
    }
    if (word.size() > short_word) {
      encode_long_word(word, out);
      continue;
    }
    uint32_t index = cache.words.find(word);
    if (index == WordTable::none) {
      if (cache.words.bytes() + cache.tokens.capacity() * 4 + cache.ends.capacity() * 8 > cache_limit) cache = {};
      index = cache.words.insert(word);
      encode_word(word, cache.tokens);
      cache.ends.push_back(cache.tokens.size());
    }
    auto first = cache.tokens.begin() + ptrdiff_t(index ? cache.ends[index - 1] : 0);
    out.insert(out.end(), first, cache.tokens.begin() + ptrdiff_t(cache.ends[index]));
  }
}

void Encoder::encode_word(std::string_view word, std::vector<uint32_t>& out) const {
  uint32_t ids[short_word];
  MergeTable::Merge pairs[short_word];  // of ids i and i + 1
  size_t n = word.size();
  const MergeTable& table = tokenizer_.ranks_;
  for (size_t i = 0; i < n; ++i) ids[i] = tokenizer_.byte_ids_[uint8_t(word[i])];
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

void Encoder::encode_long_word(std::string_view word, std::vector<uint32_t>& out) const {
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
  int64_t n = int64_t(word.size());
  std::vector<Symbol> symbols(word.size());
  std::priority_queue<Candidate> queue;
  const MergeTable& table = tokenizer_.ranks_;
  auto push = [&](int64_t at) {
    if (at < 0 || symbols[at].next < 0) return;
    auto merge = table.find(symbols[at].id, symbols[symbols[at].next].id);
    if (merge.rank != MergeTable::no_rank) queue.push({merge.rank, merge.result, at});
  };
  for (int64_t i = 0; i < n; ++i) symbols[i] = {tokenizer_.byte_ids_[uint8_t(word[i])], i - 1, i + 1 < n ? i + 1 : -1};
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

}  // namespace crest
