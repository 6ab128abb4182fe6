// A corpus as a stream of pieces: files one after another, with document boundaries, and never more
// than a few blocks in memory.
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace crest {

struct SourceFile {
  std::filesystem::path path;
  std::string name;         // for messages and meta.json: the path, or "-" for standard input
  bool json_lines = false;  // one document per line (data/json_lines.h), else text
  uint64_t file_bytes = 0;  // of the file
  uint64_t bytes = 0;       // of text; for JSON lines, 0 until they are measured
  uint64_t records = 0;     // of JSON lines, once measured: lines with a prompt and an answer
  std::string hash;         // of the content; filled by a reading
  std::string content;      // a second, faster hash by hash_contents; if known, a reading checks it
};

using Message = std::function<void(const std::string&)>;

// The files behind the inputs. Files are used as given; folders stand for all text files below
// them, sorted (hidden files, prepared data and files with NUL bytes are skipped, each with a
// message). "-" and pipes are copied to files in `spool_folder`, because they can be read only once
// (an error if it is empty). `standard_input` is a file descriptor. Errors: missing, unreadable or
// compressed inputs; no text at all.
std::vector<SourceFile> list_sources(const std::vector<std::string>& inputs, const std::filesystem::path& spool_folder,
                                     int standard_input, const Message& message);

// Reads all files once and fills `content`.
void hash_contents(std::vector<SourceFile>& sources);

// Reads all JSON lines once: finds bad lines, and fills bytes, records and hash. `progress` gets
// file bytes.
void measure_json_lines(std::vector<SourceFile>& sources, const std::string& text_key, size_t block_bytes,
                        const std::function<void(uint64_t done, uint64_t all)>& progress);

struct CorpusPiece {
  std::string_view text;         // not empty (except a prompt); ends at a safe cut, at the end of a document, or at the
                                 // held-out boundary
  bool starts_document = false;  // the first piece of a document: of a file, a JSON line, or the text after a separator
  bool held_out = false;
  bool is_prompt = false;    // part of a record; not trained on
  bool ends_record = false;  // the end of the answer
  uint64_t position = 0;     // bytes of the corpus read so far, for progress
};

struct CorpusOptions {
  std::string separator;           // splits documents (with one line break after it); empty = none
  size_t block_bytes = 8 << 20;    // bytes to read at once
  uint64_t boundary = UINT64_MAX;  // corpus byte at which the held-out part begins (moved to the next safe cut)
  std::string text_key = "text";   // of JSON lines
};

// Reads the corpus once and fills sources[i].hash. Throws if a file changed since it was listed.
void read_corpus(std::vector<SourceFile>& sources, const CorpusOptions& options,
                 const std::function<void(const CorpusPiece&)>& use);

}  // namespace crest
