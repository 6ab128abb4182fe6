// Rows of tokens from another program.
#include "data/row_stream.h"

#include <csignal>

#include "data/helpers.h"
#include "frames.h"
#include "host/stop_signal.h"

namespace crest::test {

namespace {

constexpr int64_t seq = 3, vocab = 10;

// What a stream of these bytes gives for a row: tokens, then targets.
std::vector<int32_t> sample(RowStream& rows, uint64_t row) {
  std::vector<int32_t> all(2 * seq, -7);
  rows.sample(row, all.data(), all.data() + seq);
  return all;
}

std::vector<int32_t> first_of(const std::string& content) {
  StreamOf stream(content);
  RowStream rows(stream.descriptor(), seq, vocab);
  return sample(rows, 0);
}

const std::vector<int32_t> two_rows = {1, 2, 3, 4, 5, 6, 7, 8}, one_row = {9, 0, 9, 0};

}  // namespace

TEST(RowStream, RowsOfAllFramesInOrder) {
  StreamOf stream(frame("VAL1", 4, two_rows) + frame("VAL1", 4, one_row) + frame("TOK1", 4, {}) +
                  frame("TOK1", 4, two_rows) + frame("TOK1", 4, one_row));
  RowStream rows(stream.descriptor(), seq, vocab);
  EXPECT_EQ(rows.validation_rows(), 3u);
  std::vector<int32_t> x(seq), y(seq);
  rows.validation(2, x.data(), y.data());
  EXPECT_EQ(x, (std::vector<int32_t>{9, 0, 9}));
  EXPECT_EQ(y, (std::vector<int32_t>{0, 9, 0}));
  EXPECT_EQ(sample(rows, 0), (std::vector<int32_t>{1, 2, 3, 2, 3, 4}));
  EXPECT_EQ(sample(rows, 2), (std::vector<int32_t>{9, 0, 9, 0, 9, 0}));  // row 1 is skipped
  EXPECT_THROW(sample(rows, 1), Error);
  try {
    sample(rows, 3);
    FAIL() << "the stream has three rows";
  } catch (const RowStream::Ended& end) {
    EXPECT_EQ(end.rows, 3u);
  }
}

TEST(RowStream, RowsLargerThanThePipeAndTheBuffer) {
  const int64_t length = 100'000;
  std::vector<int32_t> tokens(size_t(length) + 1);
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = int32_t(i % vocab);
  StreamOf stream(frame("TOK1", int32_t(length) + 1, tokens));
  RowStream rows(stream.descriptor(), length, vocab);
  std::vector<int32_t> x(length), y(length);
  rows.sample(0, x.data(), y.data());
  EXPECT_TRUE(std::equal(x.begin(), x.end(), tokens.begin()));
  EXPECT_TRUE(std::equal(y.begin(), y.end(), tokens.begin() + 1));
}

TEST(RowStream, ErrorsNameFrameAndRow) {
  EXPECT_ERROR(first_of(""), "nothing was written");
  EXPECT_ERROR(first_of(frame("VAL1", 4, one_row)), "no rows to train on");
  for (const char* kind : {"VAL1", "TOK1"}) EXPECT_ERROR(first_of(frame(kind, 4, {})), "no rows to train on");
  EXPECT_ERROR(first_of(frame("TOK1", 4, {}) + frame("VAL1", 4, one_row)), "frame 2: validation rows come after");
  EXPECT_ERROR(first_of("Once upon a time"), "but this one with 'Once'");
  EXPECT_ERROR(first_of("TO"), "with 'TO'");
  EXPECT_ERROR(first_of("TOK1\x01"), "frame 1: the stream ends inside a frame");
  EXPECT_ERROR(first_of(frame("TOK1", 5, {1, 2, 3, 4, 5})), "frame 1: the frame has rows of 5 tokens");
  EXPECT_ERROR(first_of(frame("TOK1", 5, {1, 2, 3, 4, 5})), "Write rows of 4 tokens, or give --seq 4.");
  EXPECT_ERROR(first_of("TOK1" + bytes_of({-1, 4})), "the frame has -1 rows");
  EXPECT_ERROR(first_of(frame("VAL1", 4, one_row) + frame("TOK1", 4, {1, 2, 10, 4})),
               "frame 2, row 1, column 3: token 10 is not in the model's vocabulary of 10");
  EXPECT_ERROR(first_of(frame("VAL1", 4, {1, 2, -1, 4})), "frame 1, row 1, column 3: token -1");
  const std::string whole = frame("TOK1", 4, two_rows);
  StreamOf cut(whole.substr(0, whole.size() - 1)), late(whole + frame("VAL1", 4, one_row)), brief(whole);
  RowStream of_cut(cut.descriptor(), seq, vocab), of_late(late.descriptor(), seq, vocab),
      of_brief(brief.descriptor(), seq, vocab);
  EXPECT_EQ(sample(of_cut, 0)[0], 1);
  EXPECT_ERROR(sample(of_cut, 1), "frame 1, row 2: the stream ends inside a frame");
  EXPECT_ERROR(sample(of_late, 2), "frame 2: validation rows come after rows to train on");
  EXPECT_ERROR(sample(of_brief, 3), "ended after 2 rows, but the run has used 3");
}

TEST(RowStream, ASignalOrAStopEndsTheWaiting) {
  StreamOf stream(frame("TOK1", 4, one_row), true);
  RowStream rows(stream.descriptor(), seq, vocab);
  sample(rows, 0);
  {
    StopSignal guard;
    std::raise(SIGINT);
    EXPECT_THROW(sample(rows, 1), RowStream::Stopped);
  }
  rows.stop();
  EXPECT_THROW(sample(rows, 1), RowStream::Stopped);
}

}  // namespace crest::test
