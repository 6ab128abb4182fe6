// Byte-level tokenizers: bytes as they are, and byte-level BPE (Sennrich et al. 2016; Radford et al. 2019).
// Every byte string can be encoded and decodes to itself, valid UTF-8 or not.
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

#include "data/word_table.h"

namespace crest {

// (left id, right id) -> (rank, id of the merged token).
class MergeTable {
 public:
  static constexpr uint32_t no_rank = UINT32_MAX;
  struct Merge {
    uint32_t rank, result;
  };
  explicit MergeTable(size_t expected = 0);
  // A later merge of the same pair replaces the earlier one.
  void set(uint32_t left, uint32_t right, Merge merge);
  // rank == no_rank when the pair does not merge.
  Merge find(uint32_t left, uint32_t right) const {
    uint64_t key = uint64_t(left) << 32 | right;
    for (size_t i = slot(key);; i = (i + 1) & mask_) {
      if (keys_[i] == key) return merges_[i];
      if (keys_[i] == free_key) return {no_rank, 0};
    }
  }

 private:
  static constexpr uint64_t free_key = UINT64_MAX;
  size_t slot(uint64_t key) const { return (key * 0x9E3779B97F4A7C15ull >> 32) & mask_; }
  size_t mask_ = 0, count_ = 0;
  std::vector<uint64_t> keys_;
  std::vector<Merge> merges_;
};

class Tokenizer {
 public:
  enum class Kind { bytes, bpe };
  static constexpr std::string_view end_of_text_name = "<|endoftext|>";

  // 256 bytes (id = byte) and <|endoftext|> = 256.
  static Tokenizer bytes();
  // The tokenizer that BPE training makes: ids 0..255 are the bytes in the alphabet's order (GPT-2's), then the results
  // of `merges` in order of first appearance, then <|endoftext|>. Pairs name ids in that numbering.
  static Tokenizer from_merges(std::span<const std::pair<uint32_t, uint32_t>> merges);
  // Reads a Hugging Face tokenizer.json of a byte-level BPE with GPT-2's split rule (what save writes, and GPT-2's
  // own). Other kinds are refused with a message that names what is not supported.
  static Tokenizer load(const std::filesystem::path& path);
  // The same from memory; `where` names the source in errors.
  static Tokenizer parse(std::string_view json, const std::string& where);

  // A tokenizer.json that Hugging Face `tokenizers` loads and that gives the same tokens there.
  void save(const std::filesystem::path& path) const;
  std::string to_json() const;

  Kind kind() const { return kind_; }
  std::string_view kind_name() const { return kind_ == Kind::bytes ? "bytes" : "bpe"; }
  // Largest id + 1, special tokens included.
  uint32_t vocab_size() const { return uint32_t(tokens_.size()); }
  size_t merge_count() const { return merges_.size(); }
  std::optional<uint32_t> end_of_text() const { return end_of_text_; }
  bool is_special(uint32_t id) const;

  // Tokens of a text. Text that spells a special token is ordinary text unless `special` (for prompts that people
  // type). Large texts are split at safe cuts and encoded by all OpenMP threads; for a stream of texts keep an Encoder.
  std::vector<uint32_t> encode(std::string_view text, bool special = false) const;
  // Bytes of the tokens; an id outside the vocabulary is an error.
  std::string decode(std::span<const uint32_t> ids) const;
  std::string_view decode_token(uint32_t id) const;

 private:
  friend class Encoder;
  friend class TokenizerReader;
  struct Merge {
    uint32_t left, right, result;
  };
  struct Token {
    uint64_t offset = 0;
    uint32_t length = 0;
    bool special = false, used = false;
  };
  Tokenizer() = default;
  void set_token(uint32_t id, std::string_view bytes, bool special);
  // Fills byte_ids_ and ranks_ from tokens_ and merges_; `where` names the source when a byte is missing.
  void finish(const std::string& where);

  Kind kind_ = Kind::bytes;
  std::string arena_;
  std::vector<Token> tokens_;
  std::vector<uint32_t> specials_;
  std::vector<Merge> merges_;  // in rank order
  MergeTable ranks_;
  uint32_t byte_ids_[256] = {};
  std::optional<uint32_t> end_of_text_;
};

// Encodes texts one after another and remembers words between them. One Encoder is used by one thread at a time;
// inside, large texts are spread over OpenMP threads. The tokenizer must outlive it.
class Encoder {
 public:
  explicit Encoder(const Tokenizer& tokenizer);
  ~Encoder();
  // Appends the tokens of `text` (ordinary text; special tokens are not looked for).
  void append(std::string_view text, std::vector<uint32_t>& out);

 private:
  struct Cache;
  void encode_chunk(std::string_view text, std::vector<uint32_t>& out, Cache& cache) const;
  void encode_word(std::string_view word, std::vector<uint32_t>& out) const;
  void encode_long_word(std::string_view word, std::vector<uint32_t>& out) const;
  const Tokenizer& tokenizer_;
  std::vector<std::unique_ptr<Cache>> caches_;
};

}  // namespace crest
