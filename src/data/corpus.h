// A corpus as a stream of pieces: files one after another, with document boundaries, and never more
// than a few blocks in memory.
#pragma once
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "data/chat.h"
#include "data/sources.h"

namespace crest {

struct CorpusPiece {
  std::string_view text;  // ends at a safe cut, at the end of a document or part, or at the held-out boundary; empty
                          // only in records
  bool starts_document = false;  // the first piece of a document: of a file, a JSON line, or the text after a separator
  bool held_out = false;
  bool trained = true;                 // false: a prompt, in a record
  bool ends_record = false;            // the last part of a record
  std::optional<uint32_t> token = {};  // this special token instead of a text, in a record
  uint64_t position = 0;               // bytes of the corpus read so far, for progress
};

struct CorpusOptions {
  std::string separator;            // splits documents (with one line break after it); empty = none
  size_t block_bytes = 8 << 20;     // bytes to read at once
  uint64_t boundary = UINT64_MAX;   // corpus byte at which the held-out part begins (moved to the next safe cut)
  std::string text_key = "text";    // of JSON lines
  ChatFormat chat = {"", nullptr};  // of their conversations
};

// Reads JSON lines and compressed files once: finds bad lines and damage, and fills bytes, records,
// chats and hash. `progress` gets file bytes.
void measure_sources(std::vector<SourceFile>& sources, const CorpusOptions& options,
                     const std::function<void(uint64_t done, uint64_t all)>& progress);

// Reads the corpus once and fills sources[i].hash. Throws if a file changed since it was listed.
void read_corpus(std::vector<SourceFile>& sources, const CorpusOptions& options,
                 const std::function<void(const CorpusPiece&)>& use);

// Pieces that are encoded together, so that threads have enough work when documents are short.
struct TextBatch {
  static constexpr size_t most_pieces = 1 << 16;
  std::string text;
  std::vector<CorpusPiece> pieces;  // without their text
  std::vector<size_t> ends;         // end of piece i's text

  void add(const CorpusPiece& piece);
  std::vector<std::string_view> texts() const;
  // Which texts go on where the one before ended.
  std::vector<uint8_t> continues() const;
  void clear() { text.clear(), pieces.clear(), ends.clear(); }
};

// Reads a corpus on a thread of its own, while the batch before is encoded.
class TextBatchReader {
 public:
  // Starts reading, as read_corpus() does. A batch has at least `bytes` of text, but for the last.
  // Sources and options must outlive the reader, and the sources belong to it until next() is
  // false.
  TextBatchReader(std::vector<SourceFile>& sources, const CorpusOptions& options, size_t bytes);
  // Ends a reading that is under way.
  ~TextBatchReader();
  TextBatchReader(const TextBatchReader&) = delete;
  TextBatchReader& operator=(const TextBatchReader&) = delete;

  // Replaces the batch by the next one; false: there is none. Throws what the reading threw, after
  // the batches before it.
  bool next(TextBatch& batch);

 private:
  struct Stopped {};  // thrown to end a reading that nobody waits for
  void read();
  void give();

  std::vector<SourceFile>& sources_;
  const CorpusOptions& options_;
  const size_t bytes_;
  TextBatch filling_;  // the thread's own
  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<TextBatch> ready_;
  TextBatch empty_;  // memory of a batch that was used
  bool done_ = false, stopped_ = false;
  std::exception_ptr error_;
  std::thread thread_;  // last: everything it uses must exist before it
};

}  // namespace crest
