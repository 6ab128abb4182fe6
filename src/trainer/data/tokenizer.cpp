#include "data/tokenizer.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"
#include "data/byte_alphabet.h"
#include "data/chat.h"
#include "data/unicode.h"

namespace crest {

void Tokenizer::set_token(uint32_t id, std::string_view bytes) {
  if (id >= tokens_.size()) tokens_.resize(id + 1);
  tokens_[id] = {.offset = arena_.size(), .length = uint32_t(bytes.size()), .used = true};
  arena_.append(bytes);
}

void Tokenizer::set_added_token(uint32_t id, std::string_view text, bool special, bool normalized) {
  set_token(id, text);
  tokens_[id].added = true;
  tokens_[id].special = special;
  tokens_[id].normalized = normalized;
}

void Tokenizer::find_bytes(const std::string& where) {
  bool found[256] = {};
  for (uint32_t id = 0; id < tokens_.size(); ++id) {
    const Token& t = tokens_[id];
    if (!t.used || (t.added && !t.of_vocabulary) || t.length != 1) continue;
    auto b = uint8_t(arena_[t.offset]);
    found[b] = true, byte_ids_[b] = id;
  }
  for (int b = 0; b < 256; ++b)
    if (!found[b])
      fail(fmt::format("the vocabulary has no token for byte 0x{:02x}", b), where,
           "Crest needs a byte-level vocabulary that contains all 256 bytes.");
}

void Tokenizer::find_characters(const std::string& where) {
  bool found[256] = {};
  for (uint32_t id = 0; id < tokens_.size(); ++id) {
    const Token& t = tokens_[id];
    if (!t.used) continue;
    if (t.byte) {
      found[uint8_t(arena_[t.offset])] = true, byte_ids_[uint8_t(arena_[t.offset])] = id;
    } else if (t.ordinary() && t.length && character_at(decode_token(id), 0).length == t.length) {
      characters_.insert(decode_token(id));
      character_ids_.push_back(id);
    }
  }
  for (int b = 0; b < 256 && byte_fallback_; ++b)
    if (!found[b])
      fail(fmt::format("the vocabulary has byte_fallback, but no token <0x{:02X}>", b), where,
           "Crest needs all 256 of them.");
}

void Tokenizer::find_added() {
  for (std::string_view name : end_of_text_names)
    if (!end_of_text_) end_of_text_ = special(name);
  for (std::string_view name : begin_of_text_names)
    if (!begin_of_text_) begin_of_text_ = special(name);
  for (uint32_t id = 0; id < tokens_.size(); ++id) {
    const Token& t = tokens_[id];
    if (!t.added) continue;
    std::string_view text = decode_token(id);
    std::string composed;
    if (t.normalized && rules_.normalize(text, true, composed)) text = composed;
    auto& found = added_[t.normalized];
    found[in_prompt].add(text, id, t.borders);
    if (t.special || id == end_of_text_) continue;  // no text ends a document
    found[in_text].add(text, id, t.borders);
    if (!is_chat_marker(decode_token(id))) found[in_conversation].add(text, id, t.borders);
  }
}

std::string Tokenizer::byte_name(uint32_t id) const {
  return fmt::format("<0x{:02X}>", uint8_t(arena_[tokens_[id].offset]));
}

void Tokenizer::finish(const std::string& where) {
  if (byte_level_)
    find_bytes(where);
  else
    find_characters(where);
  find_added();
  for (uint32_t id = 0; id < tokens_.size() && ignore_merges_; ++id) {
    const Token& t = tokens_[id];
    const std::string text = t.byte ? byte_name(id) : std::string(decode_token(id));  // as the vocabulary has it
    if (!t.used || !t.ordinary() || whole_.find(text) != StringTable::none) continue;
    whole_.insert(text);
    whole_ids_.push_back(id);
  }
  if (byte_level_) {
    if (rule_) next_pretoken_ = rule_->next_pretoken;
  } else {
    next_pretoken_ = rules_.splits_at_spaces ? next_space : next_word;
  }
  ranks_ = MergeTable(merges_.size());
  for (uint32_t r = 0; r < merges_.size(); ++r) ranks_.set(merges_[r].left, merges_[r].right, {r, merges_[r].result});
}

Tokenizer Tokenizer::bytes() {
  Tokenizer t;
  t.kind_ = Kind::bytes;
  for (uint32_t b = 0; b < 256; ++b) {
    char c = char(b);
    t.set_token(b, {&c, 1});
  }
  t.set_added_token(256, end_of_text_name, true);
  t.finish("bytes");
  return t;
}

Tokenizer Tokenizer::from_merges(std::span<const std::pair<uint32_t, uint32_t>> merges, const SplitRule& rule) {
  Tokenizer t;
  t.rule_ = &rule;
  StringTable known;  // two merges can spell the same token
  for (uint8_t b : alphabet_order()) {
    char c = char(b);
    t.set_token(known.insert({&c, 1}), {&c, 1});
  }
  for (auto [left, right] : merges) {
    if (left >= t.tokens_.size() || right >= t.tokens_.size())
      fail_internal("a merge names a token that does not exist");
    std::string both = std::string(t.decode_token(left)) + std::string(t.decode_token(right));
    uint32_t before = known.size(), id = known.insert(both);
    if (id == before) t.set_token(id, both);
    t.merges_.push_back({left, right, id});
  }
  t.set_added_token(known.size(), end_of_text_name, true);
  t.finish("trained tokenizer");
  return t;
}

bool Tokenizer::is_special(uint32_t id) const { return id < tokens_.size() && tokens_[id].special; }

std::optional<uint32_t> Tokenizer::special(std::string_view text) const {
  for (uint32_t id = 0; id < tokens_.size(); ++id)
    if (tokens_[id].special && decode_token(id) == text) return id;
  return std::nullopt;
}

std::optional<uint32_t> Tokenizer::added(std::string_view text) const {
  for (uint32_t id = 0; id < tokens_.size(); ++id)
    if (tokens_[id].added && decode_token(id) == text) return id;
  return std::nullopt;
}

std::string_view Tokenizer::decode_token(uint32_t id) const {
  if (id >= tokens_.size())
    fail(fmt::format("token {} is outside the vocabulary of {} tokens", id, tokens_.size()), "decode",
         "Use the tokenizer that made these tokens.");
  return std::string_view(arena_).substr(tokens_[id].offset, tokens_[id].length);
}

size_t Tokenizer::text_bytes(uint32_t id, bool begins) const {
  if (is_special(id)) return 0;
  std::string_view text = decode_token(id);
  if (!begins) return text.size();
  for (const TextRules::Step& step : rules_.steps) {
    if (step.kind != TextRules::Step::Kind::prepend) continue;
    const std::string put = replaced(step.to, rules_.mark, " ");
    if (text.starts_with(put)) text.remove_prefix(put.size());
  }
  if (rules_.prefix != TextRules::Prefix::never && text.starts_with(' ')) text.remove_prefix(1);
  return text.size();
}

size_t Tokenizer::first_bytes(std::string_view text, uint32_t id, bool begins) const {
  const bool has_prefix = rules_.prefix != TextRules::Prefix::never && text.starts_with(' ');
  const size_t wanted = text_bytes(id, begins && !has_prefix);
  size_t prepended = 0, end = 0;
  for (const TextRules::Step& step : rules_.steps)
    if (begins && step.kind == TextRules::Step::Kind::prepend) prepended += replaced(step.to, rules_.mark, " ").size();
  std::string normal;
  for (size_t made = 0; made < wanted && end < text.size();) {
    end += rules_.steps.empty() ? wanted : character_at(text, end).length;
    end = std::min(end, text.size());
    made = rules_.normalize(text.substr(0, end), begins, normal) ? normal.size() : end;
    made -= std::min(made, prepended);
  }
  return end;
}

std::string Tokenizer::decode(std::span<const uint32_t> ids) const {
  std::string out;
  bool first = true;
  for (uint32_t id : ids) {
    std::string_view text = decode_token(id);
    if (first && rules_.leading_space == TextRules::LeadingSpace::drop_of_first_token)
      out += replaced(text, " ", "");
    else
      out += text;
    first = false;
  }
  if (rules_.leading_space == TextRules::LeadingSpace::drop_one && out.starts_with(' ')) out.erase(0, 1);
  return out;
}

std::vector<uint32_t> Tokenizer::encode(std::string_view text, bool special) const {
  std::vector<uint32_t> out;
  Encoder(*this, special).append(text, out);
  return out;
}

}  // namespace crest
