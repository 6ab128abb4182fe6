#include "data/row_stream.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>

#include "core/error.h"
#include "core/text.h"
#include "host/stop_signal.h"

namespace crest {

static_assert(std::endian::native == std::endian::little);

namespace {

constexpr size_t buffer_bytes = 1 << 18;
constexpr int look_ms = 50;  // between two looks at the signals

struct FrameHeader {
  char kind[4];
  int32_t rows, columns;
};
static_assert(sizeof(FrameHeader) == 12);

constexpr const char* format_hint = "docs/reference/data.md describes the frames.";

}  // namespace

RowStream::RowStream(int descriptor, int64_t seq, int64_t vocab)
    : descriptor_(descriptor), seq_(seq), vocab_(vocab), buffer_(buffer_bytes), tokens_(columns()) {
  while (next_frame()) {
    if (trains_ && rows_ > 0) return;
    while (row_ < rows_) {
      next_row(true);
      validation_.insert(validation_.end(), tokens_.begin(), tokens_.end());
    }
  }
  fail(frame_ == 0 ? "nothing was written to standard input" : "the stream has no rows to train on", "standard input",
       fmt::format("--data - trains on rows of tokens from another program. {}", format_hint));
}

std::string RowStream::place() const {
  return fmt::format("standard input, frame {}{}", frame_, row_ < rows_ ? fmt::format(", row {}", row_ + 1) : "");
}

bool RowStream::fill() {
  for (begin_ = end_ = 0;;) {
    if (stopped_ || StopSignal::requested()) throw Stopped();
    pollfd waiting = {descriptor_, POLLIN, 0};
    if (poll(&waiting, 1, look_ms) <= 0) continue;  // a signal, or nothing yet
    const ssize_t n = ::read(descriptor_, buffer_.data(), buffer_.size());
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (n < 0) fail(fmt::format("cannot read: {}", std::strerror(errno)), "standard input");
    end_ = size_t(n);
    return n > 0;
  }
}

size_t RowStream::read(void* to, size_t bytes) {
  auto* out = static_cast<uint8_t*>(to);
  size_t done = 0;
  while (done < bytes) {
    if (begin_ == end_ && !fill()) break;
    const size_t n = std::min(bytes - done, end_ - begin_);
    std::memcpy(out + done, buffer_.data() + begin_, n);
    begin_ += n, done += n;
  }
  return done;
}

bool RowStream::next_frame() {
  FrameHeader header;
  const size_t bytes = read(&header, sizeof header);
  if (bytes == 0) return false;
  ++frame_;
  rows_ = row_ = 0;
  const std::string kind(header.kind, std::min(bytes, sizeof header.kind));
  if (kind != "TOK1" && kind != "VAL1")
    fail(fmt::format("a frame begins with TOK1 or VAL1, but this one with '{}'", printable(kind)), place(),
         fmt::format("{} For text: crest train FILE.", format_hint));
  if (bytes < sizeof header) fail("the stream ends inside a frame: its writer failed", place());
  if (trains_ && kind == "VAL1")
    fail("validation rows come after rows to train on", place(), "Write all VAL1 frames first.");
  if (header.rows < 0) fail(fmt::format("the frame has {} rows", header.rows), place(), format_hint);
  if (header.columns != int64_t(columns()))
    fail(fmt::format("the frame has rows of {}, but a sequence of {} needs {}",
                     format_number_of(header.columns, "token"), seq_, columns()),
         place(),
         header.columns >= 2 ? fmt::format("Write rows of {} tokens, or give --seq {}.", columns(), header.columns - 1)
                             : fmt::format("Write rows of {} tokens.", columns()));
  trains_ = kind == "TOK1";
  rows_ = header.rows;
  return true;
}

void RowStream::next_row(bool check) {
  const size_t bytes = tokens_.size() * sizeof tokens_[0];
  if (read(tokens_.data(), bytes) < bytes) fail("the stream ends inside a frame: its writer failed", place());
  if (check)
    for (size_t i = 0; i < tokens_.size(); ++i)
      if (tokens_[i] < 0 || tokens_[i] >= vocab_)
        fail(fmt::format("token {} is not in the model's vocabulary of {}", tokens_[i], vocab_),
             fmt::format("{}, column {}", place(), i + 1),
             "Correct the tokens, or train a model with a larger vocabulary.");
  ++row_;
}

void RowStream::sample(uint64_t row, int32_t* tokens, int32_t* targets) {
  if (row < next_) fail_internal(fmt::format("row {} of a stream was requested again", row), "data");
  for (; next_ <= row; ++next_) {
    while (row_ == rows_)
      if (!next_frame()) {
        if (next_ == row) throw Ended{next_};
        fail(fmt::format("the stream ended after {}, but the run has used {}", format_number_of(int64_t(next_), "row"),
                         row),
             "standard input", "Write the stream from its beginning: Crest skips the rows of the finished steps.");
      }
    next_row(next_ == row);
  }
  std::copy_n(tokens_.begin(), seq_, tokens);
  std::copy_n(tokens_.begin() + 1, seq_, targets);
}

void RowStream::validation(uint64_t row, int32_t* tokens, int32_t* targets) const {
  const int32_t* begin = validation_.data() + row * columns();
  std::copy_n(begin, seq_, tokens);
  std::copy_n(begin + 1, seq_, targets);
}

}  // namespace crest
