#include "data/tokenizer_parts.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"
#include "core/text.h"
#include "data/byte_alphabet.h"
#include "data/split_rule.h"
#include "data/unicode.h"

namespace crest {

void TokenizerParts::bad(const std::string& what) const {
  fail("not a usable tokenizer: " + what, where, "The file may be damaged or cut short; copy or train it again.");
}

void TokenizerParts::refuse(const std::string& what) const {
  fail(fmt::format("this kind of tokenizer is not supported: {}", what), where,
       fmt::format("Crest reads BPE: byte-level with a split rule of {}, or of characters as SentencePiece and Llama "
                   "have it (docs/reference/data.md lists what is read).",
                   split_rule_names()));
}

uint32_t TokenizerParts::check_id(uint64_t id) const {
  if (id >= max_tokens) bad(fmt::format("token id {} is above the limit of {}", id, max_tokens));
  return uint32_t(id);
}

void TokenizerParts::check_unused_ids(uint64_t highest_id, uint64_t tokens) const {
  if (highest_id >= 4 * tokens + 4096)
    bad(fmt::format("token id {} in a vocabulary of {} tokens leaves most ids unused", highest_id, tokens));
}

void TokenizerParts::add_token(const std::string& text, uint64_t id) {
  if (text.size() > max_token_bytes) bad("a token longer than 64 KiB");
  uint32_t before = vocabulary.size();
  if (before >= max_tokens) bad(fmt::format("more than {} tokens", max_tokens));
  if (vocabulary.insert(text) != before) bad(fmt::format("token '{}' appears twice", printable(text)));
  ids.push_back(check_id(id));
}

void TokenizerParts::add_merge(const std::string& left, const std::string& right) {
  if (left.empty() || right.empty()) bad("a merge with an empty token");
  if (merge_ends.size() >= max_tokens) bad(fmt::format("more than {} merges", max_tokens));
  merge_text += left;
  uint64_t middle = merge_text.size();
  merge_text += right;
  merge_ends.emplace_back(middle, merge_text.size());
}

void TokenizerParts::add_merge_line(const std::string& line) {
  size_t space = line.find(' ');
  if (space == 0 || space == std::string::npos || space + 1 == line.size() ||
      line.find(' ', space + 1) != std::string::npos)
    bad(fmt::format("merge '{}' is not two tokens", printable(line)));
  add_merge(line.substr(0, space), line.substr(space + 1));
}

void TokenizerParts::add_added(const Added& token) {
  if (!token.has_id || token.content.empty()) bad("an added token without id or content");
  if (added.size() >= max_added) bad(fmt::format("more than {} added tokens", max_added));
  // Texts are cut where pre-tokens end anyway, and must not be cut inside a token.
  if (!token.special && safe_cut_after(token.content, 1) < token.content.size())
    refuse(fmt::format("the added token '{}', which is not special and holds a space", printable(token.content)));
  if (token.borders.right && !token.special)
    refuse(fmt::format("the added token '{}', which is not special and has rstrip = true", printable(token.content)));
  added.push_back(token);
}

// The byte of "<0x0A>"; nullopt for other tokens.
static std::optional<uint8_t> byte_of_token(std::string_view token) {
  auto digit = [](char c) { return c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1; };
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return std::nullopt;
  int high = digit(token[3]), low = digit(token[4]);
  if (high < 0 || low < 0) return std::nullopt;
  return uint8_t(high * 16 + low);
}

std::optional<std::string> TokenizerParts::bytes_of(std::string_view token) const {
  if (byte_level) return from_alphabet(token);
  if (auto byte = byte_fallback ? byte_of_token(token) : std::nullopt) return std::string(1, char(*byte));
  return rules.mark.empty() ? std::string(token) : replaced(token, rules.mark, " ");
}

// The token between documents. Of several ends, one only for texts: chat models end their turns
// with others.
std::optional<uint32_t> TokenizerParts::document_end(const Tokenizer& t) const {
  std::vector<uint32_t> stated;
  if (auto named = t.added(end_of_text)) stated.push_back(*named);
  for (uint32_t id : ends)
    if (id < t.tokens_.size() && t.tokens_[id].added) stated.push_back(id);
  for (std::string_view name : Tokenizer::end_of_text_names)
    if (auto id = t.special(name); id && std::ranges::find(stated, *id) != stated.end()) return id;
  return stated.empty() ? std::nullopt : std::optional(stated[0]);
}

Tokenizer TokenizerParts::build() const {
  Tokenizer t;
  t.rule_ = rule;
  t.rules_ = rules;
  t.byte_level_ = byte_level;
  t.byte_fallback_ = byte_fallback, t.fuse_unknown_ = fuse_unknown;
  t.ignore_merges_ = ignore_merges;
  t.post_processor_ = post_processor;
  uint32_t highest = 0;
  for (uint32_t id : ids) highest = std::max(highest, id);
  for (auto& a : added) highest = std::max(highest, a.id);
  check_unused_ids(highest, ids.size() + added.size());
  StringTable added_texts, decoded;
  for (uint32_t i = 0; i < added.size(); ++i)
    if (added_texts.insert(added[i].content) != i)
      bad(fmt::format("added token '{}' appears twice", printable(added[i].content)));
  std::vector<uint32_t> decoded_ids;
  std::vector<bool> taken;
  for (uint32_t i = 0; i < vocabulary.size(); ++i) {
    uint32_t id = ids[i];
    if (id >= taken.size()) taken.resize(id + 1);
    if (taken[id]) bad(fmt::format("two tokens have id {}", id));
    taken[id] = true;
    std::string_view text = vocabulary[i];
    bool is_added = added_texts.find(text) != StringTable::none;
    auto bytes = bytes_of(text);
    if (!bytes || bytes->empty()) {
      if (is_added) continue;
      bad(byte_level ? fmt::format("token '{}' is not written in the byte-level alphabet", printable(text))
                     : std::string("an empty token"));
    }
    bool byte = byte_fallback && byte_of_token(text);
    if (!byte_level && text.find(' ') != std::string_view::npos)
      refuse(fmt::format("the token '{}', which holds a space that is not marked", printable(text)));
    if (!byte_level && !is_added && !byte && safe_cut_after(*bytes, 1) < bytes->size())
      refuse(fmt::format("the token '{}', which holds a space after another character", printable(text)));
    // A byte's token and its character's token are two.
    uint32_t before = decoded.size();
    if (decoded.insert(byte_level ? *bytes : std::string(text)) != before)
      bad(fmt::format("token '{}' appears twice", printable(text)));
    decoded_ids.push_back(id);
    if (is_added) continue;
    t.set_token(id, *bytes);
    t.tokens_[id].byte = byte;
  }
  for (auto& a : added) {
    uint32_t index = vocabulary.find(a.content);
    bool same = index != StringTable::none && ids[index] == a.id;
    if ((index != StringTable::none && !same) || (a.id < taken.size() && taken[a.id] && !same))
      bad(fmt::format("added token '{}' and the vocabulary disagree about id {}", printable(a.content), a.id));
    if (a.id < t.tokens_.size() && t.tokens_[a.id].used) bad(fmt::format("two added tokens have id {}", a.id));
    if (same && byte_level && character_at(a.content, 0).length == a.content.size() && from_alphabet(a.content) &&
        *from_alphabet(a.content) != a.content)
      refuse(fmt::format("the added token '{}', also the token of byte 0x{:02x}", printable(a.content),
                         uint8_t(from_alphabet(a.content)->front())));
    t.set_added_token(a.id, a.content, a.special, a.normalized);
    t.tokens_[a.id].of_vocabulary = same, t.tokens_[a.id].borders = a.borders;
    if (a.normalized && (a.borders.left || a.borders.right) && !rules.mark.empty() && !rules.marks_in_pretokens)
      refuse(fmt::format("the added token '{}', which strips spaces after they are marked", printable(a.content)));
  }
  auto id_of = [&](std::string_view text) {
    auto bytes = byte_level ? from_alphabet(text) : std::string(text);
    uint32_t index = bytes ? decoded.find(*bytes) : StringTable::none;
    if (index == StringTable::none)
      bad(fmt::format("merge of token '{}', which is not in the vocabulary", printable(text)));
    return decoded_ids[index];
  };
  t.merges_.reserve(merge_ends.size());
  size_t start = 0;
  for (auto [middle, end] : merge_ends) {
    std::string_view both = std::string_view(merge_text).substr(start, end - start);
    t.merges_.push_back({id_of(both.substr(0, middle - start)), id_of(both.substr(middle - start)), id_of(both)});
    start = end;
  }
  if (!byte_level && !byte_fallback) {
    uint32_t index = vocabulary.find(unknown);
    if (index == StringTable::none) refuse("characters without byte_fallback and without unk_token");
    t.unknown_ = ids[index];
    if (vocabulary.find(rules.mark.empty() ? " " : rules.mark) == StringTable::none)
      refuse("a vocabulary of characters without a token for the space");
  }
  t.begin_of_text_ = t.added(begin_of_text);
  t.end_of_text_ = document_end(t);
  t.finish(where);
  bool identity = byte_level && t.merges_.empty() && t.vocab_size() == 257 && t.is_special(256) &&
                  rule == &gpt2_split_rule() && rules.steps.empty() && rules.pre_tokenizer_json.empty();
  for (uint32_t b = 0; identity && b < 256; ++b) identity = t.byte_ids_[b] == b;
  if (identity) t.kind_ = Tokenizer::Kind::bytes;
  return t;
}

namespace {

using Specials = std::vector<std::pair<std::string, uint32_t>>;

Specials gpt2_specials() { return {{"<|endoftext|>", 50256}}; }

Specials cl100k_specials() {
  return {{"<|endoftext|>", 100257},
          {"<|fim_prefix|>", 100258},
          {"<|fim_middle|>", 100259},
          {"<|fim_suffix|>", 100260},
          {"<|endofprompt|>", 100276}};
}

Specials o200k_specials() { return {{"<|endoftext|>", 199999}, {"<|endofprompt|>", 200018}}; }

// 256 tokens, in the order and with the names of Llama 3's release (3.1 named some of the reserved
// ones).
Specials llama3_specials() {
  Specials out;
  int reserved = 0;
  auto reserve = [&](int until) {
    while (reserved < until) out.emplace_back(fmt::format("<|reserved_special_token_{}|>", reserved++), 0);
  };
  out.emplace_back("<|begin_of_text|>", 0);
  out.emplace_back("<|end_of_text|>", 0);
  reserve(4);
  out.emplace_back("<|start_header_id|>", 0);
  out.emplace_back("<|end_header_id|>", 0);
  reserve(5);
  out.emplace_back("<|eot_id|>", 0);
  reserve(251);
  for (uint32_t i = 0; i < out.size(); ++i) out[i].second = 128000 + i;
  return out;
}

Specials qwen_specials() { return {{"<|endoftext|>", 151643}, {"<|im_start|>", 151644}, {"<|im_end|>", 151645}}; }

const KnownVocabulary table[] = {
    {"gpt2", 50256, "gpt2", false, gpt2_specials},
    {"p50k_base", 50280, "gpt2", false, gpt2_specials},
    {"cl100k_base", 100256, "cl100k", false, cl100k_specials},
    {"o200k_base", 199998, "o200k", false, o200k_specials},
    {"Llama 3", 128000, "llama3", false, llama3_specials},
    {"Qwen", 151643, "qwen2", true, qwen_specials},
};

}  // namespace

const KnownVocabulary* find_known_vocabulary(uint32_t tokens) {
  for (auto& known : table)
    if (known.tokens == tokens) return &known;
  return nullptr;
}

}  // namespace crest
