// The content of a tokenizer file before the checks: tokens written in the byte-level alphabet
// (byte_alphabet.h) or as text. Also the parts missing in files of well-known vocabularies.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "data/tokenizer.h"
#include "data/tokenizer_tables.h"

namespace crest {

struct TokenizerParts {
  static constexpr size_t max_tokens = 1 << 20, max_token_bytes = 1 << 16, max_added = 1 << 16;
  struct Added {
    uint32_t id = 0;
    bool has_id = false, special = false, normalized = false;
    std::string content;
    AddedTokens::Borders borders = {};
  };

  explicit TokenizerParts(std::string where) : where(std::move(where)) {}
  void add_token(const std::string& text, uint64_t id);
  void add_merge(const std::string& left, const std::string& right);
  // "left right"
  void add_merge_line(const std::string& line);
  void add_added(const Added& token);
  uint32_t check_id(uint64_t id) const;
  // Throws if ids are so sparse that a model's table would have mostly unused rows. Real
  // vocabularies leave out a few ids, and some put added tokens at the next round number.
  void check_unused_ids(uint64_t highest_id, uint64_t tokens) const;
  // Reads the files next to the vocabulary's file, after that one.
  void read(const TokenizerCompanions& files);
  // The tokenizer, or an error about the parts that do not fit together.
  Tokenizer build() const;
  // Of the tokens in the files; nullopt: they state none, or only tokens made from text.
  std::optional<uint32_t> document_end(const Tokenizer& tokenizer) const;
  // The text of a token; nullopt if it is not written in the alphabet.
  std::optional<std::string> bytes_of(std::string_view token) const;

  // Errors for a damaged file, and for an unsupported kind.
  [[noreturn]] void bad(const std::string& what) const;
  [[noreturn]] void refuse(const std::string& what) const;

  std::string where;
  StringTable vocabulary;
  std::vector<uint32_t> ids;  // id of pre-token i
  std::string merge_text;     // left and right parts of all merges, one after another
  std::vector<std::pair<uint64_t, uint64_t>> merge_ends;
  std::vector<Added> added;
  const SplitRule* rule = &gpt2_split_rule();
  TextRules rules;
  bool byte_level = true;  // tokens are written in the alphabet
  bool byte_fallback = false, fuse_unknown = false, ignore_merges = false;
  std::string unknown;                     // token
  std::string begin_of_text, end_of_text;  // tokens of these names; "": none is named
  std::vector<uint32_t> ends;              // other tokens at the end of texts
  std::string post_processor = "null";
};

// Vocabularies with incomplete files: their
// split rule and special tokens.
struct KnownVocabulary {
  std::string_view name;
  uint32_t tokens;  // number of ordinary tokens; it identifies the vocabulary
  std::string_view split_rule;
  bool nfc;
  // (text, id)
  std::vector<std::pair<std::string, uint32_t>> (*special_tokens)();
};

// Null if no vocabulary of this size is known.
const KnownVocabulary* find_known_vocabulary(uint32_t tokens);

}  // namespace crest
