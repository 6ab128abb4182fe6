// Token shards on disk.
//   llm.c:    256 little-endian int32 of header (magic 20240520, version 1, number of tokens), then uint16 tokens
//   llm.c's Llama 3 variant: magic 20240801, version 7, uint32 tokens; written for vocabularies above 65536
//   mask:     next to a shard, .mask for .bin: the same header with magic 20260301, version 1, and a byte a token: 1
//             where the token is trained on as a target, else 0. Version 2, if conversations have end-of-text tokens
//             inside: plus 2 where such a token does not end the document. No file: all tokens are trained on. Other
//             readers pass it over.
//   nanoGPT:  uint16 tokens without a header (read only)
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/dtype.h"
#include "core/io.h"

namespace crest {

enum class ShardFormat : uint8_t { llmc_u16, llmc_u32, nanogpt };

struct ShardHeader {
  static constexpr size_t bytes = 1024;
  ShardFormat format = ShardFormat::llmc_u16;
  uint64_t tokens = 0;
  uint64_t data_offset = 0;  // in bytes
  size_t token_bytes() const { return format == ShardFormat::llmc_u32 ? 4 : 2; }
};

// Interprets the first bytes (at most 1024) of a file of `file_bytes`. Errors name `where`: foreign
// file, unknown version, negative count, size and header in contradiction.
ShardHeader parse_shard_header(std::span<const uint8_t> start, uint64_t file_bytes, const std::string& where);

class ShardReader {
 public:
  // vocab_size: tokens must be below it (0 = unknown, not checked).
  explicit ShardReader(const std::filesystem::path& path, uint32_t vocab_size = 0);
  uint64_t tokens() const { return header_.tokens; }
  const ShardHeader& header() const { return header_; }
  const std::string& path() const { return file_.path(); }
  // Whether the shard has a mask file.
  bool masked() const { return mask_.has_value(); }
  // 1 for trained tokens, else 0; all 1 without a mask.
  void read_mask(uint64_t position, size_t n, uint8_t* out) const;
  // 1 for end-of-text tokens inside a document, else 0.
  void read_inside(uint64_t position, size_t n, uint8_t* out) const;
  uint64_t file_bytes() const { return header_.data_offset + header_.tokens * header_.token_bytes(); }
  // Reads n tokens from `position`. Thread-safe. Errors name file and position: past the end, file
  // cut short, token too large.
  void read(uint64_t position, size_t n, int32_t* out) const;

 private:
  File file_;
  ShardHeader header_;
  void read_marks(uint64_t position, size_t n, uint8_t* out) const;
  std::optional<File> mask_;
  uint8_t largest_mark_ = 1;  // of its version
  uint32_t vocab_size_;
};

// Writes PREFIX-000000.bin, PREFIX-000001.bin, ... into a folder. A shard appears under its name
// only when complete and synced.
class ShardWriter {
 public:
  static constexpr uint64_t default_shard_tokens = 100'000'000;
  ShardWriter(std::filesystem::path folder, std::string prefix, uint32_t vocab_size,
              uint64_t shard_tokens = default_shard_tokens, bool masks = false);
  // Removes an unfinished shard.
  ~ShardWriter();
  ShardWriter(const ShardWriter&) = delete;
  // For a writer with masks: whether all of these tokens are trained on as targets; whether they
  // are end-of-text tokens inside a conversation.
  void append(std::span<const uint32_t> tokens, bool trained = true, bool inside = false);
  void finish();
  uint64_t total_tokens() const { return total_; }
  uint64_t trained_tokens() const { return trained_; }
  const std::vector<std::string>& file_names() const { return names_; }
  static DType token_dtype(uint32_t vocab_size) { return vocab_size > 65536 ? DType::i32 : DType::u16; }

 private:
  void open_shard();
  void close_shard();
  void put(std::span<const uint32_t> tokens);
  void flush();
  void write_mask() const;
  std::filesystem::path folder_, temporary_;
  std::string prefix_;
  uint32_t vocab_size_;
  uint64_t shard_tokens_, total_ = 0, trained_ = 0, in_shard_ = 0;
  bool masks_, open_ = false;
  File file_;
  std::vector<uint8_t> buffer_, mask_;  // mask_: of the whole shard
  std::vector<std::string> names_;
};

}  // namespace crest
