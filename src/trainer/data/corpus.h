// A corpus as a stream of pieces: files one after another, with document boundaries, and never more
// than a few blocks in memory.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/bad_lines.h"
#include "data/chat.h"
#include "data/sources.h"

namespace crest {

struct CorpusPiece {
  std::string_view text;  // ends at a safe cut, at the end of a document or part, or at the held-out boundary; empty
                          // only in records
  bool starts_document = false;  // the first piece of a document: of a file, a JSON line, or the text after a separator
  bool held_out = false;
  bool trained = true;                 // false: a prompt, in a record
  bool conversation = false;           // of a record
  bool ends_record = false;            // the last part of a record
  std::optional<uint32_t> token = {};  // this special token instead of a text, in a record
  uint64_t position = 0;               // bytes of the corpus read so far, for progress
};

struct CorpusOptions {
  std::string separator;            // splits documents (with one line break after it); empty = none
  size_t block_bytes = 8 << 20;     // bytes to read at once
  uint64_t boundary = UINT64_MAX;   // first corpus byte of the held-out part (moved to the next safe cut)
  std::string text_key = "text";    // of JSON lines
  ChatFormat chat = {"", nullptr};  // of their conversations
  BadLines* bad_lines = nullptr;    // lines and rows that cannot be used; null: they are errors
  // By document: whether it is left out (data/duplicates.h). Null: all are kept.
  const std::vector<bool>* left_out = nullptr;
  uint64_t left_out_bytes = 0;  // of their texts
};

// Reads JSON lines, Parquet and compressed files once: finds bad lines and damage, and fills bytes,
// records, chats and hash. `progress` gets file bytes.
void measure_sources(std::vector<SourceFile>& sources, const CorpusOptions& options,
                     const std::function<void(uint64_t done, uint64_t all)>& progress);

// Reads the corpus once and fills sources[i].hash. Throws if a file changed since it was listed.
void read_corpus(std::vector<SourceFile>& sources, const CorpusOptions& options,
                 const std::function<void(const CorpusPiece&)>& use);

}  // namespace crest
