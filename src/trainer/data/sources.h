// The files of a corpus: found, recognized and read, compressed or not.
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "core/unpack.h"

namespace crest {

// How inputs are read. automatic: by the name (.jsonl, .ndjson), or without a name by the content.
enum class TextFormat : uint8_t { automatic, text, json_lines };
// "auto", "text" or "jsonl"; else a usage error.
TextFormat parse_text_format(std::string_view name);

struct SourceFile {
  std::filesystem::path path;
  std::string name;         // for messages and meta.json: the path, or "-" for standard input
  bool json_lines = false;  // one document per line (data/json_lines.h), else text
  bool parquet = false;     // one document per row (data/parquet.h)
  Compression compression = Compression::none;
  bool byte_order_mark = false;  // UTF-8's: not part of the text
  uint64_t file_bytes = 0;       // of the file
  uint64_t bytes = 0;            // of text; until they are measured, 0 for JSON lines, Parquet and compressed files
  uint64_t records = 0;          // of JSON lines, once measured: lines with prompt and answer, conversations
  uint64_t chats = 0;            // conversations among them
  std::string hash;              // of the file's bytes; filled by a reading
  std::string content;           // a second, faster hash by hash_contents; if known, a reading checks it
};

// skipped: why the first file was skipped; "": none was.
[[noreturn]] void fail_no_text(const std::vector<std::string>& inputs, const std::string& skipped = {});

using Message = std::function<void(const std::string&)>;

// The files behind the inputs. Files are used as given; folders stand for all text files below
// them, sorted (hidden files, prepared data and other files than text are skipped, each with a
// message). "-" and pipes are copied to files in `spool_folder`, because they can be read only once
// (an error if it is empty). `standard_input` is a file descriptor. Errors: missing, unreadable or
// binary inputs; no text at all.
std::vector<SourceFile> list_sources(const std::vector<std::string>& inputs, const std::filesystem::path& spool_folder,
                                     int standard_input, const Message& message,
                                     TextFormat format = TextFormat::automatic);

// Reads all files once and fills `content`. `progress` gets file bytes.
void hash_contents(std::vector<SourceFile>& sources,
                   const std::function<void(uint64_t done, uint64_t all)>& progress = {});

// The text of a source, block by block, unpacked. `file_done`: bytes of the file read so far.
// Computes its hash, or compares it with an earlier reading's. A compressed file may unpack to 1
// GiB, or to 200 times its size.
using UseBlock = std::function<void(std::string_view block, bool last, uint64_t file_done)>;
void read_source(SourceFile& source, std::string& block, const UseBlock& use);
// Computes the hash of a file whose text read_source cannot read (Parquet), or compares it.
void hash_source(SourceFile& source);

// Bytes of text in a file, or `most` if there are more.
uint64_t text_size(const std::string& path, uint64_t most);

}  // namespace crest
