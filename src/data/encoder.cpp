// Encoding: added tokens, normalization, pre-tokens by the split rule, then the merges within a
// pre-token.
#include <omp.h>

#include <algorithm>
#include <exception>

#include "data/split_rule.h"
#include "data/tokenizer.h"
#include "data/unicode.h"

namespace crest {

namespace {
constexpr size_t longest_cached = 48;              // bytes: longer pre-tokens are not cached
constexpr size_t encoded_chunk_bytes = 128 << 10;  // per task; smaller texts are not split
constexpr size_t cache_limit = 48 << 20;           // bytes per thread
}  // namespace

// Cached pre-tokens and their tokens.
struct Encoder::Cache {
  StringTable pretokens;
  std::vector<uint32_t> tokens;
  std::vector<uint64_t> ends;  // end of pre-token i's tokens
};

Encoder::Encoder(const Tokenizer& tokenizer, bool special) : tokenizer_(tokenizer), special_(special) {
  caches_.emplace_back(std::make_unique<Cache>());
}

Encoder::~Encoder() = default;

const std::vector<Encoder::Tokens>& Encoder::encode(std::span<const std::string_view> texts) {
  std::vector<std::string_view> chunks;
  ends_.clear();
  for (std::string_view text : texts) {
    while (text.size() > encoded_chunk_bytes * 3 / 2 && !special_) {  // a special token may contain a safe cut
      size_t cut = safe_cut_after(text, encoded_chunk_bytes);
      chunks.push_back(text.substr(0, cut));
      text.remove_prefix(cut);
    }
    if (!text.empty()) chunks.push_back(text);
    ends_.push_back(chunks.size());
  }
  parts_.resize(chunks.size());
  size_t threads = std::min(chunks.size(), size_t(std::max(1, omp_get_max_threads())));
  while (caches_.size() < threads) caches_.emplace_back(std::make_unique<Cache>());
  std::exception_ptr error;
#pragma omp parallel for schedule(dynamic, 1) num_threads(int(threads)) if (threads > 1)
  for (size_t i = 0; i < chunks.size(); ++i) {
    try {
      // On this thread's stack while it grows: the ends of neighboring parts share a cache line.
      Tokens tokens = std::move(parts_[i]);
      tokens.clear();
      if (tokens.capacity() > 2 * chunks[i].size() + 64) tokens = {};  // left from a longer text
      encode_chunk(chunks[i], tokens, *caches_[omp_get_thread_num()]);
      parts_[i] = std::move(tokens);
    } catch (...) {
#pragma omp critical
      error = std::current_exception();
    }
  }
  if (error) std::rethrow_exception(error);
  return parts_;
}

void Encoder::append(std::string_view text, Tokens& out) {
  encode({&text, 1});
  for (size_t i = 0; i < ends_[0]; ++i) out.insert(out.end(), parts_[i].begin(), parts_[i].end());
}

// Calls plain(piece) and token(id) for the parts into which `added` splits the text.
template <class Plain, class Token>
static void divide(const AddedTokens& added, std::string_view text, Plain plain, Token token) {
  for (size_t done = 0; done < text.size();) {
    AddedTokens::Match match = added.find(text, done);
    if (match.at > done) plain(text.substr(done, match.at - done));
    if (match.length) token(match.id);
    done = match.at + match.length;
  }
}

void Encoder::encode_chunk(std::string_view text, Tokens& out, Cache& cache) const {
  auto plain = [&](std::string_view piece) {
    std::string composed;
    if (tokenizer_.nfc_ && normalize_nfc(piece, composed)) piece = composed;
    encode_normalized(piece, out, cache);
  };
  divide(tokenizer_.added_[0][special_], text, plain, [&](uint32_t id) { out.push_back(id); });
}

void Encoder::encode_normalized(std::string_view text, Tokens& out, Cache& cache) const {
  auto plain = [&](std::string_view piece) { encode_pretokens(piece, out, cache); };
  divide(tokenizer_.added_[1][special_], text, plain, [&](uint32_t id) { out.push_back(id); });
}

void Encoder::encode_pretokens(std::string_view text, Tokens& out, Cache& cache) const {
  if (tokenizer_.kind_ == Tokenizer::Kind::bytes) {
    for (char c : text) out.push_back(tokenizer_.byte_ids_[uint8_t(c)]);
    return;
  }
  auto next_pretoken = tokenizer_.rule_->next_pretoken;
  for (size_t start = 0, end; start < text.size(); start = end) {
    end = next_pretoken(text, start);
    std::string_view pretoken = text.substr(start, end - start);
    if (pretoken.size() == 1) {
      out.push_back(tokenizer_.byte_ids_[uint8_t(pretoken[0])]);
      continue;
    }
    if (pretoken.size() > longest_cached) {
      encode_pretoken(pretoken, out);
      continue;
    }
    uint32_t index = cache.pretokens.find(pretoken);
    if (index == StringTable::none) {
      if (cache.pretokens.bytes() + cache.tokens.capacity() * 4 + cache.ends.capacity() * 8 > cache_limit) cache = {};
      index = cache.pretokens.insert(pretoken);
      encode_pretoken(pretoken, cache.tokens);
      cache.ends.push_back(cache.tokens.size());
    }
    auto first = cache.tokens.begin() + ptrdiff_t(index ? cache.ends[index - 1] : 0);
    out.insert(out.end(), first, cache.tokens.begin() + ptrdiff_t(cache.ends[index]));
  }
}

void Encoder::encode_pretoken(std::string_view pretoken, Tokens& out) const {
  if (tokenizer_.ignore_merges_) {
    uint32_t whole = tokenizer_.whole_.find(pretoken);
    if (whole != StringTable::none) return out.push_back(tokenizer_.whole_ids_[whole]);
  }
  uint32_t small[longest_cached];
  Tokens large(pretoken.size() > longest_cached ? pretoken.size() : 0);
  uint32_t* ids = large.empty() ? small : large.data();
  for (size_t i = 0; i < pretoken.size(); ++i) ids[i] = tokenizer_.byte_ids_[uint8_t(pretoken[i])];
  merge_pretoken(tokenizer_.ranks_, ids, pretoken.size(), out);
}

}  // namespace crest
