// Pieces of a corpus in batches, read by a thread of its own while the batch before is encoded.
#pragma once
#include <condition_variable>
#include <exception>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "data/corpus.h"

namespace crest {

// Pieces that are encoded together, so that threads have enough work when documents are short.
struct Batch {
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

class BatchReader {
 public:
  // Starts reading, as read_corpus() does. A batch has at least `bytes` of text, but for the last.
  // Sources and options must outlive the reader, and the sources belong to it until next() is
  // false.
  BatchReader(std::vector<SourceFile>& sources, const CorpusOptions& options, size_t bytes);
  // Ends a reading that is under way.
  ~BatchReader();
  BatchReader(const BatchReader&) = delete;
  BatchReader& operator=(const BatchReader&) = delete;

  // Replaces the batch by the next one; false: there is none. Throws what the reading threw, after
  // the batches before it.
  bool next(Batch& batch);

 private:
  struct Stopped {};  // thrown to end a reading that nobody waits for
  void read();
  void give();

  std::vector<SourceFile>& sources_;
  const CorpusOptions& options_;
  const size_t bytes_;
  Batch filling_;  // the thread's own
  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<Batch> ready_;
  Batch empty_;  // memory of a batch that was used
  bool done_ = false, stopped_ = false;
  std::exception_ptr error_;
  std::thread thread_;  // last: everything it uses must exist before it
};

}  // namespace crest
