#include "data/tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "core/error.h"
#include "data/byte_alphabet.h"

namespace crest {

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

void Tokenizer::set_token(uint32_t id, std::string_view bytes, bool special) {
  if (id >= tokens_.size()) tokens_.resize(id + 1);
  tokens_[id] = {arena_.size(), uint32_t(bytes.size()), special, true};
  arena_.append(bytes);
  if (special) specials_.push_back(id);
}

void Tokenizer::finish(const std::string& where) {
  bool found[256] = {};
  for (uint32_t id = 0; id < tokens_.size(); ++id) {
    if (!tokens_[id].used || tokens_[id].special || tokens_[id].length != 1) continue;
    uint8_t b = uint8_t(arena_[tokens_[id].offset]);
    found[b] = true, byte_ids_[b] = id;
  }
  for (int b = 0; b < 256; ++b)
    if (!found[b])
      fail(fmt::format("the vocabulary has no token for byte 0x{:02x}", b), where,
           "Crest needs a byte-level vocabulary that contains all 256 bytes.");
  ranks_ = MergeTable(merges_.size());
  for (uint32_t r = 0; r < merges_.size(); ++r) ranks_.set(merges_[r].left, merges_[r].right, {r, merges_[r].result});
  for (std::string_view name : {end_of_text_name, std::string_view("<|end_of_text|>"), std::string_view("</s>")})
    for (uint32_t id : specials_)
      if (!end_of_text_ && decode_token(id) == name) end_of_text_ = id;
}

Tokenizer Tokenizer::bytes() {
  Tokenizer t;
  for (uint32_t b = 0; b < 256; ++b) {
    char c = char(b);
    t.set_token(b, {&c, 1}, false);
  }
  t.set_token(256, end_of_text_name, true);
  t.finish("bytes");
  return t;
}

Tokenizer Tokenizer::from_merges(std::span<const std::pair<uint32_t, uint32_t>> merges) {
  Tokenizer t;
  t.kind_ = Kind::bpe;
  WordTable known;  // two merges can spell the same token
  for (uint8_t b : alphabet_order()) {
    char c = char(b);
    t.set_token(known.insert({&c, 1}), {&c, 1}, false);
  }
  for (auto [left, right] : merges) {
    if (left >= t.tokens_.size() || right >= t.tokens_.size())
      fail_internal("a merge names a token that does not exist");
    std::string both = std::string(t.decode_token(left)) + std::string(t.decode_token(right));
    uint32_t before = known.size(), id = known.insert(both);
    if (id == before) t.set_token(id, both, false);
    t.merges_.push_back({left, right, id});
  }
  t.set_token(known.size(), end_of_text_name, true);
  t.finish("trained tokenizer");
  return t;
}

bool Tokenizer::is_special(uint32_t id) const { return id < tokens_.size() && tokens_[id].special; }

std::string_view Tokenizer::decode_token(uint32_t id) const {
  if (id >= tokens_.size())
    fail(fmt::format("token {} is outside the vocabulary of {} tokens", id, tokens_.size()), "decode",
         "Use the tokenizer that the tokens were made with.");
  return std::string_view(arena_).substr(tokens_[id].offset, tokens_[id].length);
}

std::string Tokenizer::decode(std::span<const uint32_t> ids) const {
  std::string out;
  for (uint32_t id : ids) out += decode_token(id);
  return out;
}

std::vector<uint32_t> Tokenizer::encode(std::string_view text, bool special) const {
  std::vector<uint32_t> out;
  Encoder encoder(*this);
  while (special && !text.empty()) {
    // The leftmost special token, of those the longest.
    size_t at = std::string_view::npos, length = 0;
    uint32_t id = 0;
    for (uint32_t s : specials_) {
      std::string_view name = decode_token(s);
      size_t p = name.empty() ? std::string_view::npos : text.find(name);
      if (p < at || (p == at && p != std::string_view::npos && name.size() > length))
        at = p, length = name.size(), id = s;
    }
    if (at == std::string_view::npos) break;
    encoder.append(text.substr(0, at), out);
    out.push_back(id);
    text.remove_prefix(at + length);
  }
  encoder.append(text, out);
  return out;
}

}  // namespace crest
