// Tokenizers: plain bytes, byte-level BPE (Sennrich et al. 2016; Radford et al. 2019), and BPE over
// characters as SentencePiece trains it for Llama. Without a normalizer, the first two encode every
// byte string, valid UTF-8 or not, and decode it to itself.
#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/error.h"
#include "data/split_rule.h"
#include "data/text_rules.h"
#include "data/tokenizer_companions.h"
#include "data/tokenizer_tables.h"

namespace crest {

struct TokenizerParts;

class Tokenizer {
 public:
  enum class Kind { bytes, bpe };
  static constexpr std::string_view end_of_text_name = "<|endoftext|>";
  // Special tokens of these texts end and begin texts, where a tokenizer's files state no others.
  static constexpr std::string_view end_of_text_names[] = {end_of_text_name, "<|end_of_text|>", "</s>"},
                                    begin_of_text_names[] = {"<|begin_of_text|>", "<s>"};

  // 256 bytes (id = byte) and <|endoftext|> = 256.
  static Tokenizer bytes();
  // The tokenizer made by BPE training: ids 0..255 are the bytes in the alphabet's order (GPT-2's),
  // then come the results of `merges` in order of first appearance, then <|endoftext|>. Pairs use
  // ids in this numbering.
  static Tokenizer from_merges(std::span<const std::pair<uint32_t, uint32_t>> merges,
                               const SplitRule& rule = gpt2_split_rule());
  // Reads a tokenizer from a file: Hugging Face tokenizer.json, GPT-2's vocab.json
  // (encoder.json) with merges.txt (vocab.bpe) next to it, .tiktoken, or a
  // SentencePiece model; or from a folder with tokenizer.json, GPT-2's files or
  // tokenizer.model. Companion files with transformers' names may add or name
  // tokens. `split_rule` (a name; "" = as in the file, or as known for the
  // vocabulary) is for files without one. Unsupported features are rejected by name.
  static Tokenizer load(const std::filesystem::path& path, std::string_view split_rule = {});
  // The file read by load in a folder; nullopt: none.
  static std::optional<std::filesystem::path> find(const std::filesystem::path& folder);
  // A tokenizer.json in memory. `where` names the source in errors.
  static Tokenizer parse(std::string_view json, const std::string& where, const TokenizerCompanions& files = {});
  // GPT-2's pair of files in memory.
  static Tokenizer parse_gpt2(std::string_view vocabulary_json, std::string_view merges, const std::string& where,
                              std::string_view split_rule = {}, const TokenizerCompanions& files = {});
  // A SentencePiece model (BPE) in memory. Its tokens are the same as `sentencepiece`'s.
  static Tokenizer parse_sentencepiece(std::string_view model, const std::string& where,
                                       const TokenizerCompanions& files = {});
  // A .tiktoken file in memory. Its tokens are the same as `tiktoken`'s.
  static Tokenizer parse_tiktoken(std::string_view ranks, const std::string& where, std::string_view split_rule = {});

  // Writes a tokenizer.json with the same tokens in Hugging Face `tokenizers`. It is read back: a
  // tokenizer beyond the limits of load throws Unreadable, and no file stays.
  void save(const std::filesystem::path& path) const;
  class Unreadable : public Error {
   public:
    Unreadable(const std::string& problem, const std::string& where);
  };
  std::string to_json() const;

  Kind kind() const { return kind_; }
  std::string_view kind_name() const { return kind_ == Kind::bytes ? "bytes" : "bpe"; }
  const SplitRule& split_rule() const { return *rule_; }
  // Tokens of bytes; otherwise of characters, and the split rule does not apply.
  bool byte_level() const { return byte_level_; }
  // Every byte string decodes to itself.
  bool lossless() const { return byte_level_ && rules_.steps.empty() && rules_.prefix == TextRules::Prefix::never; }
  // Largest id + 1, special tokens included.
  uint32_t vocab_size() const { return uint32_t(tokens_.size()); }
  size_t merge_count() const { return merges_.size(); }
  // The token between documents. Text with its spelling stays text.
  std::optional<uint32_t> end_of_text() const { return end_of_text_; }
  // A token only for the beginning of texts, as in Llama.
  std::optional<uint32_t> begin_of_text() const { return begin_of_text_; }
  // The tokens before every text in Hugging Face `tokenizers`: what tokenizer.json's
  // post-processor puts there.
  std::vector<uint32_t> text_prefix() const;
  bool is_special(uint32_t id) const;
  // The special token of this text; the added token, special or not.
  std::optional<uint32_t> special(std::string_view text) const;
  std::optional<uint32_t> added(std::string_view text) const;
  // "" if both give the same tokens of every text, and call the same ones special; else the first
  // difference as a sentence: "token 300 is 'th' in MINE, 'he' in THEIRS".
  std::string difference(const Tokenizer& other, std::string_view mine, std::string_view theirs) const;

  // Tokens of a text. Text with the spelling of a special token is ordinary
  // text unless `special` is set (for prompts); added tokens without the
  // mark "special" are always found. Large texts are split at safe cuts and
  // encoded by all OpenMP threads. For a stream of texts, keep an Encoder.
  std::vector<uint32_t> encode(std::string_view text, bool special = false) const;
  // Text of the tokens, without the tokenizer's space before the text. An id outside the vocabulary
  // is an error.
  std::string decode(std::span<const uint32_t> ids) const;
  // Bytes of a token within a text.
  std::string_view decode_token(uint32_t id) const;
  // Bytes of text behind a token. Special tokens stand for none. begins: the token begins a text,
  // so the tokenizer's prefix does not count.
  size_t text_bytes(uint32_t id, bool begins = false) const;
  // How many bytes of `text` its first token, `id`, was made of: as they were before normalization.
  size_t first_bytes(std::string_view text, uint32_t id, bool begins) const;

 private:
  friend class Encoder;
  friend struct TokenizerParts;
  struct Merge {
    uint32_t left, right, result;
  };
  struct Token {
    uint64_t offset = 0;
    uint32_t length = 0;
    bool special = false, added = false, normalized = false, used = false, byte = false;
    bool of_vocabulary = false;  // of an added one: the vocabulary has it, too
    AddedTokens::Borders borders = {};
    // Also made of text that is not found as the added token (single_word).
    bool ordinary() const { return !added || (of_vocabulary && !special); }
  };
  static constexpr uint32_t no_token = UINT32_MAX;
  Tokenizer() = default;
  void set_token(uint32_t id, std::string_view bytes);
  // A token found in the text before the text is split into pre-tokens.
  void set_added_token(uint32_t id, std::string_view text, bool special, bool normalized = false);
  void find_bytes(const std::string& where);
  void find_characters(const std::string& where);
  void find_added();
  // The tokens of the bytes of a character; a space is written as its mark.
  void append_bytes(std::string_view character, std::vector<uint32_t>& ids) const;
  // The initial tokens of merging: of bytes or characters.
  void first_symbols(std::string_view text, std::vector<uint32_t>& symbols) const;
  // "<0x0A>" of a token of a byte.
  std::string byte_name(uint32_t id) const;
  // Ranks of the possible merges, in order. whole_matter: some tokens are made by none.
  std::vector<uint32_t> working_merges(bool& whole_matter) const;
  // Computes data for encoding from tokens_ and merges_. `where` names the source if a byte is
  // missing.
  void finish(const std::string& where);

  Kind kind_ = Kind::bpe;
  std::string arena_;
  std::vector<Token> tokens_;
  std::vector<Merge> merges_;  // in rank order
  const SplitRule* rule_ = &gpt2_split_rule();
  TextRules rules_;
  bool byte_level_ = true;
  // Characters without a token: the tokens of their bytes, if any; else `unknown_`, one for a run
  // of them with fuse_unknown_.
  bool byte_fallback_ = false, fuse_unknown_ = false;
  uint32_t unknown_ = no_token;
  bool ignore_merges_ = false;           // a pre-token equal to a token stays this token, whatever the merges give
  std::string post_processor_ = "null";  // JSON, for readers of save's file

  // Computed by finish.
  MergeTable ranks_;
  uint32_t byte_ids_[256] = {};
  size_t (*next_pretoken_)(std::string_view, size_t) = nullptr;  // null: the text is one
  StringTable characters_;  // with tokens, if not byte_level_; character i is token character_ids_[i]
  std::vector<uint32_t> character_ids_;
  StringTable whole_;  // of the tokens, if ignore_merges_; pre-token i is token whole_ids_[i]
  std::vector<uint32_t> whole_ids_;
  // Added tokens found in a text. Special ones are found in prompts only, markers never in
  // conversations.
  enum Spelled : uint8_t { in_text, in_prompt, in_conversation };
  AddedTokens added_[2][3];                              // [searched before (0) or after (1) normalization]
  std::optional<uint32_t> end_of_text_, begin_of_text_;  // set before finish: as the files state
};

// Encodes texts one after another and caches pre-tokens. Only one thread may use an Encoder at a
// time; internally, large texts use all OpenMP threads. The tokenizer must outlive it.
class Encoder {
 public:
  // special: text with the spelling of a special token becomes this token.
  explicit Encoder(const Tokenizer& tokenizer, bool special = false);
  ~Encoder();
  using Tokens = std::vector<uint32_t>;
  // The tokens of all texts in order, in parts made by threads: text i ends before part ends()[i].
  // Valid until the next call. Of each text; empty: of none. `continues`: the text goes on where
  // the one before ended. `conversation`: a marker (is_chat_marker) in it stays text, special or
  // not.
  const std::vector<Tokens>& encode(std::span<const std::string_view> texts, std::span<const uint8_t> continues = {},
                                    std::span<const uint8_t> conversation = {});
  const std::vector<size_t>& ends() const { return ends_; }
  // Appends the tokens of `text`.
  void append(std::string_view text, Tokens& out);

 private:
  struct Cache;
  struct Chunk {
    std::string_view text;
    bool begins;  // not the continuation of another text
    Tokenizer::Spelled spelled;
  };
  void encode_chunk(const Chunk& chunk, Tokens& out, Cache& cache) const;
  // `first`: the text is the first of its document.
  void encode_normalized(std::string_view text, bool begins, bool first, const AddedTokens& added, Tokens& out,
                         Cache& cache) const;
  void encode_piece(std::string_view text, bool begins, bool first, Tokens& out, Cache& cache) const;
  void encode_pretokens(std::string_view text, Tokens& out, Cache& cache) const;
  void encode_pretoken(std::string_view pretoken, Tokens& out) const;
  void encode_characters(std::string_view pretoken, Tokens& out) const;
  const Tokenizer& tokenizer_;
  const bool special_;
  std::vector<std::unique_ptr<Cache>> caches_;  // one per thread
  std::vector<Tokens> parts_;                   // kept to reuse their memory
  std::vector<size_t> ends_;
};

}  // namespace crest
