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

const std::vector<Encoder::Tokens>& Encoder::encode(std::span<const std::string_view> texts,
                                                    std::span<const uint8_t> continues,
                                                    std::span<const uint8_t> conversation) {
  std::vector<Chunk> chunks;
  ends_.clear();
  for (size_t i = 0; i < texts.size(); ++i) {
    bool chat = !conversation.empty() && conversation[i];
    Chunk rest{texts[i], continues.empty() || !continues[i],
               special_ ? Tokenizer::in_prompt
               : chat   ? Tokenizer::in_conversation
                        : Tokenizer::in_text};
    while (rest.text.size() > encoded_chunk_bytes * 3 / 2 && !special_) {  // a special token may contain a safe cut
      size_t cut = safe_cut_after(rest.text, encoded_chunk_bytes);
      chunks.push_back({rest.text.substr(0, cut), rest.begins, rest.spelled});
      rest.text.remove_prefix(cut);
      rest.begins = false;
    }
    if (!rest.text.empty()) chunks.push_back(rest);
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
      if (tokens.capacity() > 2 * chunks[i].text.size() + 64) tokens = {};  // left from a longer text
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

// Calls plain(piece) and token(id) for the parts of the text, split by `added`.
template <class Plain, class Token>
static void divide(const AddedTokens& added, std::string_view text, Plain plain, Token token) {
  for (size_t done = 0; done < text.size();) {
    AddedTokens::Match match = added.find(text, done);
    if (match.at > done) plain(text.substr(done, match.at - done));
    if (match.length) token(match.id);
    done = match.at + match.length;
  }
}

void Encoder::encode_chunk(const Chunk& chunk, Tokens& out, Cache& cache) const {
  auto plain = [&](std::string_view piece) {
    bool inside = piece.data() != chunk.text.data();  // after an added token
    bool begins = chunk.begins || inside;
    std::string normal;
    bool changed = tokenizer_.rules_.normalize(piece, begins, normal);
    encode_normalized(changed ? normal : piece, begins, begins && !inside, tokenizer_.added_[1][chunk.spelled], out,
                      cache);
  };
  divide(tokenizer_.added_[0][chunk.spelled], chunk.text, plain, [&](uint32_t id) { out.push_back(id); });
}

void Encoder::encode_normalized(std::string_view text, bool begins, bool first, const AddedTokens& added, Tokens& out,
                                Cache& cache) const {
  auto plain = [&](std::string_view piece) {
    bool inside = piece.data() != text.data();
    encode_piece(piece, begins || inside, first && !inside, out, cache);
  };
  divide(added, text, plain, [&](uint32_t id) { out.push_back(id); });
}

void Encoder::encode_piece(std::string_view text, bool begins, bool first, Tokens& out, Cache& cache) const {
  const TextRules& rules = tokenizer_.rules_;
  std::string changed;
  auto with_prefix = [&](std::string_view part, bool wanted) -> std::string_view {
    if (!wanted || part.starts_with(' ')) return part;
    changed = ' ' + std::string(part);
    return changed;
  };
  if (tokenizer_.byte_level_) {
    bool prefix = rules.prefix != TextRules::Prefix::never;
    if (rules.digits == TextRules::Digits::ordinary)
      return encode_pretokens(with_prefix(text, prefix && begins), out, cache);
    for (size_t start = 0, end; start < text.size(); start = end) {
      end = next_digits(text, start, rules.digits == TextRules::Digits::single);
      encode_pretokens(with_prefix(text.substr(start, end - start), prefix && (begins || start > 0)), out, cache);
    }
    return;
  }
  std::string marked;
  if (rules.marks_in_pretokens && text.find(rules.mark) != std::string_view::npos)
    text = marked = replaced(text, rules.mark, " ");
  text = with_prefix(text, begins && (rules.prefix == TextRules::Prefix::always ||
                                      (rules.prefix == TextRules::Prefix::first && first)));
  encode_pretokens(text, out, cache);
}

void Encoder::encode_pretokens(std::string_view text, Tokens& out, Cache& cache) const {
  if (tokenizer_.kind_ == Tokenizer::Kind::bytes) {
    for (char c : text) out.push_back(tokenizer_.byte_ids_[uint8_t(c)]);
    return;
  }
  auto next_pretoken = tokenizer_.next_pretoken_;
  const bool byte_level = tokenizer_.byte_level_;
  for (size_t start = 0, end; start < text.size(); start = end) {
    end = next_pretoken(text, start);
    std::string_view pretoken = text.substr(start, end - start);
    if (pretoken.size() == 1 && byte_level) {
      out.push_back(tokenizer_.byte_ids_[uint8_t(pretoken[0])]);
      continue;
    }
    if (pretoken.size() > longest_cached) {
      for (size_t part; !pretoken.empty(); pretoken.remove_prefix(part)) {
        part = merged_part(pretoken);
        encode_pretoken(pretoken.substr(0, part), out);
      }
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
  if (!tokenizer_.byte_level_) return encode_characters(pretoken, out);
  uint32_t small[longest_cached];
  Tokens large(pretoken.size() > longest_cached ? pretoken.size() : 0);
  uint32_t* ids = large.empty() ? small : large.data();
  for (size_t i = 0; i < pretoken.size(); ++i) ids[i] = tokenizer_.byte_ids_[uint8_t(pretoken[i])];
  merge_pretoken(tokenizer_.ranks_, ids, pretoken.size(), out);
}

void Tokenizer::append_bytes(std::string_view character, std::vector<uint32_t>& ids) const {
  if (!byte_level_ && character == " ") character = rules_.mark;
  for (char c : character) ids.push_back(byte_ids_[uint8_t(c)]);
}

void Encoder::encode_characters(std::string_view pretoken, Tokens& out) const {
  Tokens ids;
  bool unknown = false;  // the character before
  for (size_t i = 0; i < pretoken.size();) {
    size_t length = character_at(pretoken, i).length;
    // As in SentencePiece, a byte outside valid UTF-8 is U+FFFD.
    bool valid = length > 1 || uint8_t(pretoken[i]) < 0x80;
    std::string_view character = valid ? pretoken.substr(i, length) : "\xef\xbf\xbd";
    uint32_t index = tokenizer_.characters_.find(character);
    if (index != StringTable::none) {
      ids.push_back(tokenizer_.character_ids_[index]);
    } else if (tokenizer_.byte_fallback_) {
      tokenizer_.append_bytes(character, ids);
    } else if (!unknown || !tokenizer_.fuse_unknown_) {
      ids.push_back(tokenizer_.unknown_);
    }
    unknown = index == StringTable::none && !tokenizer_.byte_fallback_;
    i += length;
  }
  merge_pretoken(tokenizer_.ranks_, ids.data(), ids.size(), out);
}

}  // namespace crest
