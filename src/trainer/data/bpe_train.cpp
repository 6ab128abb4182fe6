#include "data/bpe_train.h"

#include <fmt/format.h>
#include <omp.h>

#include <algorithm>
#include <exception>
#include <queue>

#include "core/error.h"
#include "data/byte_alphabet.h"
#include "data/interrupt.h"
#include "data/split_rule.h"

namespace crest {

namespace {

constexpr size_t chunk_bytes = 512 << 10;

// Pairs of adjacent symbols, with their counts over the corpus and the pre-tokens that contain
// them.
class Pairs {
 public:
  struct Pair {
    uint32_t left, right;
    int64_t count = 0;
    bool merged = false;
    uint32_t result = 0;
    std::vector<uint32_t> pretokens;  // may include pre-tokens that no longer contain the pair
  };
  uint32_t index(uint32_t left, uint32_t right) {
    auto found = table_.find(left, right);
    if (found.rank != MergeTable::no_rank) return found.rank;
    table_.set(left, right, {uint32_t(pairs_.size()), 0});
    pairs_.push_back({left, right, 0, false, 0, {}});
    return uint32_t(pairs_.size() - 1);
  }
  Pair& operator[](uint32_t i) { return pairs_[i]; }
  size_t size() const { return pairs_.size(); }
  void found_in(uint32_t pair, uint32_t pretoken) {
    auto& list = pairs_[pair].pretokens;
    if (list.empty() || list.back() != pretoken) list.push_back(pretoken);
  }

 private:
  MergeTable table_;
  std::vector<Pair> pairs_;
};

struct Candidate {
  int64_t count;
  uint32_t left, right, pair;
  bool operator<(const Candidate& o) const {  // the best is on top
    if (count != o.count) return count < o.count;
    return left != o.left ? left > o.left : right > o.right;
  }
};

}  // namespace

void BpeTrainer::Counts::add(std::string_view pretoken, int64_t count) {
  uint32_t index = pretokens.insert(pretoken);
  if (index == counts.size()) counts.push_back(0);
  counts[index] += count;
}

BpeTrainer::BpeTrainer(uint32_t vocab_size, const SplitRule& rule) : vocab_size_(vocab_size), rule_(rule) {
  if (vocab_size < smallest_vocab || vocab_size > largest_vocab)
    fail_usage(
        fmt::format("a BPE vocabulary of {} tokens is not possible", vocab_size), "--tokenizer",
        fmt::format("Choose {} (256 bytes and {}) to {}.", smallest_vocab, Tokenizer::end_of_text_name, largest_vocab));
}

void BpeTrainer::add(std::string_view text) {
  std::vector<std::string_view> chunks;
  while (!text.empty()) {
    size_t cut = text.size() > chunk_bytes * 3 / 2 ? safe_cut_after(text, chunk_bytes) : text.size();
    chunks.push_back(text.substr(0, cut));
    text.remove_prefix(cut);
  }
  auto count_chunk = [&](std::string_view chunk, Counts& counts) {
    for (size_t start = 0, end; start < chunk.size(); start = end) {
      end = rule_.next_pretoken(chunk, start);
      counts.add(chunk.substr(start, end - start), 1);
    }
  };
  std::vector<Counts> locals(size_t(std::max(1, std::min<int>(omp_get_max_threads(), int(chunks.size())))));
  std::exception_ptr error;
#pragma omp parallel for schedule(static, 1) num_threads(int(locals.size()))
  for (size_t i = 0; i < chunks.size(); ++i) {
    try {
      count_chunk(chunks[i], locals[omp_get_thread_num()]);
    } catch (...) {
#pragma omp critical
      error = std::current_exception();
    }
  }
  if (error) std::rethrow_exception(error);
  for (auto& local : locals)
    for (uint32_t i = 0; i < local.pretokens.size(); ++i) {
      uint32_t index = pretokens_.insert(local.pretokens[i]);
      if (index == counts_.size()) counts_.push_back(0);
      counts_[index] += local.counts[i];
    }
}

Tokenizer BpeTrainer::train(const std::function<void(size_t, size_t)>& progress) const {
  // Pre-tokens as symbols, one after another. A merge shortens a pre-token in place.
  std::vector<uint32_t> symbols;
  std::vector<uint64_t> starts;
  std::vector<uint32_t> lengths;
  uint32_t byte_ids[256];
  for (uint32_t i = 0; i < 256; ++i) byte_ids[alphabet_order()[i]] = i;
  for (uint32_t w = 0; w < pretokens_.size(); ++w) {
    starts.push_back(symbols.size());
    for (char c : pretokens_[w]) symbols.push_back(byte_ids[uint8_t(c)]);
    lengths.push_back(uint32_t(pretokens_[w].size()));
  }
  Pairs pairs;
  for (uint32_t w = 0; w < starts.size(); ++w) {
    if (w % 4096 == 0) check_interrupted();
    for (uint32_t i = 0; i + 1 < lengths[w]; ++i) {
      uint32_t p = pairs.index(symbols[starts[w] + i], symbols[starts[w] + i + 1]);
      pairs[p].count += counts_[w];
      pairs.found_in(p, w);
    }
  }
  std::priority_queue<Candidate> queue;
  for (uint32_t p = 0; p < pairs.size(); ++p) queue.push({pairs[p].count, pairs[p].left, pairs[p].right, p});

  StringTable tokens;  // spellings: two merges can produce the same token
  for (uint8_t b : alphabet_order()) tokens.insert(std::string_view(reinterpret_cast<const char*>(&b), 1));
  std::vector<std::pair<uint32_t, uint32_t>> merges;
  std::vector<uint32_t> touched;  // pairs that a merge made more frequent
  const uint32_t wanted = vocab_size_ - 1;
  while (tokens.size() < wanted && !queue.empty()) {
    Candidate top = queue.top();
    queue.pop();
    int64_t count = pairs[top.pair].count;
    if (count < 1) continue;
    if (count != top.count) {  // rarer than when it was pushed; pairs that became more frequent were pushed again
      if (count < top.count) queue.push({count, top.left, top.right, top.pair});
      continue;
    }
    check_interrupted();  // a merge takes long only where the text is large
    if (!pairs[top.pair].merged) {
      if (tokens[top.left].size() + tokens[top.right].size() > longest_token) continue;
      std::string both = std::string(tokens[top.left]) + std::string(tokens[top.right]);
      pairs[top.pair].result = tokens.insert(both);
      pairs[top.pair].merged = true;
      merges.emplace_back(top.left, top.right);
      if (progress && merges.size() % 256 == 0) progress(tokens.size() - 256, wanted - 256);
    }
    const uint32_t result = pairs[top.pair].result;
    std::vector<uint32_t> where = std::move(pairs[top.pair].pretokens);
    pairs[top.pair].pretokens.clear();
    touched.clear();
    auto change = [&](uint32_t left, uint32_t right, int64_t by, uint32_t pretoken) {
      uint32_t p = pairs.index(left, right);
      pairs[p].count += by;
      if (by > 0) {
        pairs.found_in(p, pretoken);
        touched.push_back(p);
      }
    };
    for (uint32_t w : where) {
      uint32_t* s = symbols.data() + starts[w];
      uint32_t n = lengths[w], out = 0;
      for (uint32_t i = 0; i < n; ++i, ++out) {
        if (i + 1 == n || s[i] != top.left || s[i + 1] != top.right) {
          s[out] = s[i];
          continue;
        }
        if (out > 0) {
          change(s[out - 1], top.left, -counts_[w], w);
          change(s[out - 1], result, counts_[w], w);
        }
        if (i + 2 < n) {
          change(top.right, s[i + 2], -counts_[w], w);
          change(result, s[i + 2], counts_[w], w);
        }
        s[out] = result;
        ++i;
      }
      lengths[w] = out;
    }
    pairs[top.pair].count = 0;
    std::sort(touched.begin(), touched.end());
    touched.erase(std::unique(touched.begin(), touched.end()), touched.end());
    for (uint32_t p : touched)
      if (pairs[p].count > 0) queue.push({pairs[p].count, pairs[p].left, pairs[p].right, p});
  }
  return Tokenizer::from_merges(merges, rule_);
}

}  // namespace crest
