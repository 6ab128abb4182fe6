// A prepared data folder: shards of the splits, tokenizer, metadata.
#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/shards.h"
#include "data/tokenizer.h"

namespace crest {

// The shards of a split, read as one sequence of tokens. Thread-safe.
class TokenStream {
 public:
  TokenStream() = default;
  // Bytes of the text behind the tokens (with masks: the targets), and behind the first token,
  // which nothing predicts. Not known for every folder.
  struct Text {
    std::optional<uint64_t> bytes, first_bytes;
  };
  TokenStream(std::string name, std::vector<ShardReader> shards, Text text = {});
  // "train" or "val", for messages
  const std::string& name() const { return name_; }
  uint64_t total_tokens() const { return total_; }
  bool empty() const { return total_ == 0; }
  const std::vector<ShardReader>& shards() const { return shards_; }
  // Reads n tokens from `position`. Throws past the end.
  void read(uint64_t position, size_t n, int32_t* out) const;
  // Whether there are masks; then all shards have one.
  bool masked() const { return masked_; }
  // 1 for tokens trained on as targets, else 0.
  void read_mask(uint64_t position, size_t n, uint8_t* out) const;
  // 1 for end-of-text tokens inside a conversation, where the document goes on, else 0.
  void read_inside(uint64_t position, size_t n, uint8_t* out) const;
  const Text& text() const { return text_; }

 private:
  std::string name_;
  Text text_;
  std::vector<ShardReader> shards_;
  std::vector<uint64_t> starts_;  // first token of shard i
  uint64_t total_ = 0;
  bool masked_ = false;
  template <class Read>
  void for_shards(uint64_t position, size_t n, const Read& read) const;
};

// Shown by `crest data info`.
struct DatasetInfo {
  std::string folder, format;  // format: "llm.c", "llm.c (uint32)", "nanoGPT"
  std::string tokenizer;       // "bytes", "bpe", or "" if the folder has none
  uint32_t vocab_size = 0;     // 0 = unknown
  std::string token_dtype;     // "u16" or "u32"
  uint64_t train_tokens = 0, val_tokens = 0, train_shards = 0, val_shards = 0, shard_bytes = 0;
  // From meta.json; 0 or empty without it.
  bool loss_mask = false;                       // some tokens are not trained on
  uint64_t train_targets = 0, val_targets = 0;  // with masks: number of trained tokens
  // Of the text of each split (with masks: of its targets); older versions of Crest left them out.
  TokenStream::Text train_text, val_text;
  std::string chat_template;  // of conversations in it (data/chat.h); "" without any
  bool add_bos = false;       // documents begin with the tokenizer's begin-of-text token
  uint64_t documents = 0, text_bytes = 0, source_files = 0;
  double bytes_per_token = 0;
  std::string created_by, content_hash;
  struct Source {
    std::string path, hash;
    uint64_t bytes = 0;
  };
  std::vector<Source> sources;  // at most the first 1000
};

class Dataset {
 public:
  // A folder written by `crest data prepare`, or any folder with *train*.bin and *val*.bin shards
  // of llm.c or nanoGPT (sorted by name). `vocab_size` is for folders without their own (0 =
  // unknown, tokens are not checked); it must match the folder's.
  static Dataset open(const std::filesystem::path& folder, uint32_t vocab_size = 0);
  // Without shards, for rows from elsewhere (data/row_stream.h). tokenizer: null if unknown; then
  // `vocab_size` counts.
  static Dataset of_stream(std::shared_ptr<const Tokenizer> tokenizer, uint32_t vocab_size);

  const TokenStream& train() const { return *train_; }
  const TokenStream& val() const { return *val_; }
  // 0 = unknown
  uint32_t vocab_size() const { return info_.vocab_size; }
  // Null if the folder has no tokenizer.json.
  std::shared_ptr<const Tokenizer> tokenizer() const { return tokenizer_; }
  const DatasetInfo& info() const { return info_; }

 private:
  std::shared_ptr<const TokenStream> train_, val_;
  std::shared_ptr<const Tokenizer> tokenizer_;
  DatasetInfo info_;
};

// The metadata in meta.json, also used by prepare. Throws if Crest did not write the file.
DatasetInfo read_meta(const std::filesystem::path& path);
// The value of key "format" in prepare's meta.json.
inline constexpr const char* data_format = "crest-data";
// Whether the folder's meta.json was written by prepare, of any version.
bool is_prepared_data(const std::filesystem::path& folder);
// The "requested" tokenizer spec and the source key in meta.json; both decide whether a cached
// folder may be reused ("" if absent).
std::string read_cache_key(const std::filesystem::path& path);

}  // namespace crest
