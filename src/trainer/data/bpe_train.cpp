#include "data/bpe_train.h"

#include <fmt/format.h>
#include <omp.h>

#include <algorithm>
#include <exception>
#include <queue>
#include <utility>

#include "core/error.h"
#include "core/random.h"
#include "data/byte_alphabet.h"
#include "data/interrupt.h"
#include "data/split_rule.h"

namespace crest {

namespace {

constexpr size_t chunk_bytes = 512 << 10;

struct Candidate {
  int64_t count;
  uint32_t left, right;
  bool operator<(const Candidate& o) const {  // the best is on top
    if (count != o.count) return count < o.count;
    return left != o.left ? left > o.left : right > o.right;
  }
};

// A token's id where two bytes are too few. Most of the memory is symbols.
class Symbol24 {
 public:
  Symbol24() = default;
  explicit Symbol24(uint32_t id) : bytes_{uint8_t(id), uint8_t(id >> 8), uint8_t(id >> 16)} {}
  operator uint32_t() const { return uint32_t(bytes_[0] | bytes_[1] << 8 | bytes_[2] << 16); }

 private:
  uint8_t bytes_[3] = {};
};
static_assert(BpeTrainer::largest_vocab <= 1 << 24);

// The pre-tokens as symbols, one after another. A merge shortens a pre-token in place. Places of
// pairs are kept by block: one pre-token, or several where a list of all pre-tokens with a pair
// would be larger than the text. Symbol: holds a token's id.
template <class Symbol>
class Words {
 public:
  Words(BpeTrainer::Counts counted, bool small_blocks) : counts_(std::move(counted.counts)) {
    Symbol byte_ids[256];
    for (uint32_t i = 0; i < 256; ++i) byte_ids[alphabet_order()[i]] = Symbol(i);
    const StringTable& pretokens = counted.pretokens;
    size_t all = 0;
    for (uint32_t w = 0; w < pretokens.size(); ++w) all += pretokens[w].size();
    symbols_.reserve(all), starts_.reserve(pretokens.size()), lengths_.reserve(pretokens.size());
    for (uint32_t w = 0; w < pretokens.size(); ++w) {
      const size_t in_block = symbols_.size() - (blocks_.empty() ? 0 : starts_[blocks_.back()]);
      if (blocks_.empty() || small_blocks || in_block >= block_symbols) blocks_.push_back(w);
      starts_.push_back(symbols_.size());
      for (char c : pretokens[w]) symbols_.push_back(byte_ids[uint8_t(c)]);
      lengths_.push_back(uint32_t(pretokens[w].size()));
    }
  }
  uint32_t blocks() const { return uint32_t(blocks_.size()); }
  // use(symbols, length, count) for the pre-tokens of a block; length may be changed.
  template <class Use>
  void each(uint32_t block, Use use) {
    const size_t end = block + 1 < blocks_.size() ? blocks_[block + 1] : starts_.size();
    for (size_t w = blocks_[block]; w < end; ++w) use(symbols_.data() + starts_[w], lengths_[w], counts_[w]);
  }
  // use(left, right, count, block) for all pairs.
  template <class Use>
  void each_pair(Use use) {
    for (uint32_t b = 0; b < blocks(); ++b) {
      if (b % 1024 == 0) check_interrupted();
      each(b, [&](const Symbol* s, uint32_t n, int64_t count) {
        for (uint32_t i = 0; i + 1 < n; ++i) use(s[i], s[i + 1], count, b);
      });
    }
  }

 private:
  static constexpr size_t block_symbols = 1024;
  std::vector<Symbol> symbols_;
  std::vector<uint32_t> lengths_, blocks_;  // blocks_: their first pre-tokens
  std::vector<uint64_t> starts_;
  std::vector<int64_t> counts_;
};

// Pairs with their counts over the corpus and their blocks.
class Pairs {
 public:
  struct Pair {
    uint32_t left, right;
    int64_t count = 0;
    bool touched = false;
    std::vector<uint32_t> blocks = {};  // may include blocks without the pair
    Candidate candidate() const { return {count, left, right}; }
  };
  static constexpr uint32_t none = MergeTable::no_rank;
  uint32_t find(uint32_t left, uint32_t right) const { return table_.find(left, right).rank; }
  uint32_t index(uint32_t left, uint32_t right) {
    uint32_t found = find(left, right);
    if (found != none) return found;
    add({left, right});
    return uint32_t(pairs_.size() - 1);
  }
  void add(Pair pair) {
    table_.set(pair.left, pair.right, {uint32_t(pairs_.size()), 0});
    pairs_.push_back(std::move(pair));
  }
  void count(uint32_t p, int64_t by, uint32_t block) {
    Pair& pair = pairs_[p];
    pair.count += by;
    if (by > 0 && (pair.blocks.empty() || pair.blocks.back() != block)) pair.blocks.push_back(block);
  }
  Pair& operator[](uint32_t i) { return pairs_[i]; }
  size_t size() const { return pairs_.size(); }
  std::vector<Pair>& all() { return pairs_; }

 private:
  MergeTable table_;
  std::vector<Pair> pairs_;
};

// Merges the most frequent pair, again and again. For a large text it tracks only pairs with a
// count of `least_` or more. Merges make untracked pairs rarer, with one exception: a merge may
// produce a token again. Then the pairs of this token are counted in the text. When no tracked pair
// is left, all pairs are counted again.
template <class Symbol>
class Merger {
 public:
  Merger(Words<Symbol>& words, size_t tracked, uint32_t vocab_size)
      : words_(words), tracked_(tracked), wanted_(vocab_size - 1) {
    for (uint8_t b : alphabet_order()) tokens_.insert(std::string_view(reinterpret_cast<const char*>(&b), 1));
    words_.each_pair([&](uint32_t left, uint32_t right, int64_t count, uint32_t block) {
      pairs_.count(pairs_.index(left, right), count, block);
    });
    for (Pairs::Pair& pair : pairs_.all()) pair.blocks.shrink_to_fit();
    fill_queue();
  }

  std::vector<std::pair<uint32_t, uint32_t>> merges(const std::function<void(size_t, size_t)>& progress) {
    std::vector<std::pair<uint32_t, uint32_t>> merges;
    while (tokens_.size() < wanted_) {
      if (queue_.empty() || queue_.top() < least_) {
        if (!pruned_) break;
        count_again();
        if (queue_.empty()) break;
      }
      Candidate top = queue_.top();
      queue_.pop();
      const uint32_t p = pairs_.find(top.left, top.right);
      if (p == Pairs::none) continue;  // no longer tracked
      const int64_t count = pairs_[p].count;
      if (count < 1) continue;
      if (count != top.count) {  // rarer than when pushed; pairs with a higher count were pushed again
        if (count < top.count) queue_.push({count, top.left, top.right});
        continue;
      }
      check_interrupted();  // a merge takes long only where the text is large
      const uint32_t before = tokens_.size();
      MergeTable::Merge made = merged_.find(top.left, top.right);
      if (made.rank == MergeTable::no_rank) {
        if (too_long(top.left, top.right)) continue;
        made.result = tokens_.insert(std::string(tokens_[top.left]) + std::string(tokens_[top.right]));
        merged_.set(top.left, top.right, {uint32_t(merges.size()), made.result});
        merges.emplace_back(top.left, top.right);
        if (progress && merges.size() % 256 == 0) progress(tokens_.size() - 256, wanted_ - 256);
      }
      apply(p, made.result, tokens_.size() == before);
    }
    return merges;
  }

 private:
  bool too_long(uint32_t left, uint32_t right) const {
    return tokens_[left].size() + tokens_[right].size() > BpeTrainer::longest_token;
  }

  // known: another merge made this token before.
  void apply(uint32_t p, uint32_t result, bool known) {
    const uint32_t left = pairs_[p].left, right = pairs_[p].right;
    std::vector<uint32_t> where = std::move(pairs_[p].blocks);
    pairs_[p].blocks.clear();
    touched_.clear();
    Pairs fresh;  // pairs of the result
    auto change = [&](uint32_t a, uint32_t b, int64_t by, uint32_t block) {
      uint32_t q = pairs_.find(a, b);
      if (q == Pairs::none) {
        if (a == result || b == result) fresh.count(fresh.index(a, b), by, block);
        return;
      }
      pairs_.count(q, by, block);
      if (by > 0 && !pairs_[q].touched) pairs_[q].touched = true, touched_.push_back(q);
    };
    for (uint32_t block : where)
      words_.each(block, [&](Symbol* s, uint32_t& length, int64_t count) {
        uint32_t n = length, out = 0;
        for (uint32_t i = 0; i < n; ++i, ++out) {
          if (i + 1 == n || s[i] != left || s[i + 1] != right) {
            s[out] = s[i];
            continue;
          }
          if (out > 0) {
            change(s[out - 1], left, -count, block);
            change(s[out - 1], result, count, block);
          }
          if (i + 2 < n) {
            change(right, s[i + 2], -count, block);
            change(result, s[i + 2], count, block);
          }
          s[out] = Symbol(result);
          ++i;
        }
        length = out;
      });
    pairs_[p].count = 0;
    for (uint32_t q : touched_) {
      pairs_[q].touched = false;
      if (pairs_[q].count > 0) queue_.push(pairs_[q].candidate());
    }
    if (known && pruned_) recount(fresh);
    for (Pairs::Pair& pair : fresh.all()) {
      if (pair.count < 1 || pair.candidate() < least_) continue;
      queue_.push(pair.candidate());
      pair.blocks.shrink_to_fit();  // only this merge makes the pair
      pairs_.add(std::move(pair));
    }
    if (pairs_.size() > 2 * tracked_) track_best();
    if (queue_.size() > 2 * (pairs_.size() + tracked_)) fill_queue();
  }

  // Untracked pairs may have had places before this merge.
  void recount(Pairs& some) {
    for (Pairs::Pair& pair : some.all()) pair.count = 0, pair.blocks.clear();
    words_.each_pair([&](uint32_t left, uint32_t right, int64_t count, uint32_t block) {
      if (uint32_t p = some.find(left, right); p != Pairs::none) some.count(p, count, block);
    });
  }

  void fill_queue() {
    std::vector<Candidate> all;
    all.reserve(pairs_.size());
    for (Pairs::Pair& pair : pairs_.all())
      if (pair.count > 0) all.push_back(pair.candidate());
    queue_ = std::priority_queue<Candidate>({}, std::move(all));
  }

  // Forgets all but the best.
  void track_best() {
    std::vector<Candidate> all;
    all.reserve(pairs_.size());
    for (Pairs::Pair& pair : pairs_.all()) all.push_back(pair.candidate());
    auto last = all.begin() + ptrdiff_t(tracked_ - 1);
    std::nth_element(all.begin(), last, all.end(), [](const Candidate& a, const Candidate& b) { return b < a; });
    if (!pruned_ || least_ < *last) least_ = *last;
    pruned_ = true;
    Pairs kept;
    for (Pairs::Pair& pair : pairs_.all())
      if (!(pair.candidate() < least_)) kept.add(std::move(pair));
    pairs_ = std::move(kept);
    fill_queue();
  }

  // The most frequent pairs. They are counted in parts to save memory.
  void count_again() {
    const uint64_t parts = std::max<uint64_t>(1, pairs_in_text() / tracked_);
    std::vector<Candidate> best;  // a heap with the worst on top
    auto better = [](const Candidate& a, const Candidate& b) { return b < a; };
    bool all = true;
    for (uint64_t part = 0; part < parts; ++part) {
      Pairs counted;
      words_.each_pair([&](uint32_t left, uint32_t right, int64_t count, uint32_t) {
        if (mix(uint64_t(left) << 32 | right) % parts == part) counted[counted.index(left, right)].count += count;
      });
      for (Pairs::Pair& pair : counted.all()) {
        if (too_long(pair.left, pair.right)) continue;
        best.push_back(pair.candidate());
        std::push_heap(best.begin(), best.end(), better);
        if (best.size() <= tracked_) continue;
        std::pop_heap(best.begin(), best.end(), better);
        best.pop_back();
        all = false;
      }
    }
    pruned_ = !all;
    least_ = all ? Candidate{0, UINT32_MAX, UINT32_MAX} : best.front();
    pairs_ = {};
    for (const Candidate& c : best) pairs_.index(c.left, c.right);
    recount(pairs_);
    fill_queue();
  }

  uint64_t pairs_in_text() {
    uint64_t n = 0;
    words_.each_pair([&](uint32_t, uint32_t, int64_t, uint32_t) { ++n; });
    return n;
  }

  Words<Symbol>& words_;
  const size_t tracked_;
  const uint32_t wanted_;
  StringTable tokens_;  // spellings: two merges can produce the same token
  MergeTable merged_;
  Pairs pairs_;
  std::priority_queue<Candidate> queue_;  // may hold a pair several times
  std::vector<uint32_t> touched_;         // pairs with a higher count after a merge
  bool pruned_ = false;                   // some pairs are not tracked: worse ones than least_
  Candidate least_{0, UINT32_MAX, UINT32_MAX};
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
  bytes_ += text.size();
  std::vector<std::string_view> chunks;
  while (!text.empty()) {
    size_t cut = text.size() > chunk_bytes * 3 / 2 ? safe_cut_after(text, chunk_bytes) : text.size();
    chunks.push_back(text.substr(0, cut));
    text.remove_prefix(cut);
  }
  auto count_chunk = [&](std::string_view chunk, Counts& counts) {
    for (size_t start = 0, end; start < chunk.size(); start = end) {
      end = rule_.next_pretoken(chunk, start);
      std::string_view pretoken = chunk.substr(start, end - start);
      for (size_t part; !pretoken.empty(); pretoken.remove_prefix(part)) {
        part = merged_part(pretoken);
        counts.add(pretoken.substr(0, part), 1);
      }
    }
  };
  if (chunks.size() == 1) return count_chunk(chunks[0], counts_);
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
  for (auto& local : locals) {
    for (uint32_t i = 0; i < local.pretokens.size(); ++i) counts_.add(local.pretokens[i], local.counts[i]);
    local = {};
  }
}

Tokenizer BpeTrainer::train(const std::function<void(size_t, size_t)>& progress, size_t tracked) {
  uint64_t distinct = 0;
  for (uint32_t w = 0; w < counts_.pretokens.size(); ++w) distinct += counts_.pretokens[w].size();
  auto merges = [&]<class Symbol>(Symbol) {
    Words<Symbol> words(std::exchange(counts_, {}), 5 * distinct < bytes_);
    return Merger<Symbol>(words, tracked ? tracked : std::max<size_t>(1 << 15, bytes_ / 200), vocab_size_)
        .merges(progress);
  };
  return Tokenizer::from_merges(vocab_size_ <= 1 << 16 ? merges(uint16_t()) : merges(Symbol24()), rule_);
}

}  // namespace crest
