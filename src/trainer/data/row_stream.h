// Rows of tokens that another program writes to a pipe (crest train --data -), as frames:
//   4 bytes  "TOK1": rows to train on, or "VAL1": rows for validation, before all others
//   int32    rows
//   int32    columns: the sequence length + 1
//   int32    tokens [rows][columns]
// All numbers are little endian. Row r of all TOK1 frames is sample r of the run.
#pragma once
#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

namespace crest {

class RowStream {
 public:
  // Thrown by sample(): the stream ended at the end of a frame. rows: how many it had.
  struct Ended {
    uint64_t rows;
  };
  // Thrown instead of waiting for the writer after a StopSignal or stop().
  struct Stopped {};

  // Reads the validation rows and the header behind them, so it waits for the writer. The caller
  // keeps the descriptor open.
  RowStream(int descriptor, int64_t seq, int64_t vocab);
  RowStream(const RowStream&) = delete;

  int64_t seq() const { return seq_; }
  // tokens, targets: [seq]; targets[i] is the token after tokens[i]. Rows come in ascending order;
  // rows before `row` are skipped. An Error names the frame and the row.
  void sample(uint64_t row, int32_t* tokens, int32_t* targets);

  uint64_t validation_rows() const { return validation_.size() / columns(); }
  void validation(uint64_t row, int32_t* tokens, int32_t* targets) const;

  // Ends the waiting of another thread.
  void stop() { stopped_ = true; }

 private:
  size_t columns() const { return size_t(seq_) + 1; }
  // Returns false at the end of the stream.
  bool next_frame();
  // The next row, into row_. check: its tokens.
  void next_row(bool check);
  // Returns the bytes read; fewer only at the end of the stream.
  size_t read(void* to, size_t bytes);
  // At least one byte into the buffer, else false: the end of the stream.
  bool fill();
  std::string place() const;

  const int descriptor_;
  const int64_t seq_, vocab_;
  std::atomic<bool> stopped_ = false;
  std::vector<uint8_t> buffer_;
  size_t begin_ = 0, end_ = 0;  // unread bytes of the buffer
  int64_t frame_ = 0;           // from 1
  bool trains_ = false;         // the frame is of kind TOK1
  int64_t rows_ = 0, row_ = 0;  // of the frame; the next one
  uint64_t next_ = 0;           // of all TOK1 frames
  std::vector<int32_t> tokens_, validation_;
};

}  // namespace crest
