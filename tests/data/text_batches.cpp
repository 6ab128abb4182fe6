// A corpus in batches, read by a thread: the same pieces as in one reading, errors after the
// batches before them, and an end in the middle.
#include "data/corpus.h"

#include "core/error.h"
#include "data/helpers.h"

using namespace crest;
using namespace crest::test;

namespace {

std::string words(size_t n) {
  std::string s;
  for (size_t i = 0; s.size() < n; ++i) s += "word" + std::to_string(i) + (i % 40 ? " " : "<|endoftext|>");
  return s;
}

class TextBatches : public ::testing::Test {
 protected:
  void SetUp() override {
    write_file(dir_ / "a.txt", words(30'000));
    write_file(dir_ / "b.txt", words(10'000));
    options_.separator = "<|endoftext|>", options_.block_bytes = 1000;
    sources_ = list_sources({dir_ / "a.txt", dir_ / "b.txt"}, {}, 0, {});
  }
  DataFolder dir_;
  CorpusOptions options_;
  std::vector<SourceFile> sources_;
};

}  // namespace

TEST_F(TextBatches, HoldThePiecesOfOneReading) {
  std::vector<std::string> expected, found;
  std::vector<uint8_t> continues, found_continues;
  read_corpus(sources_, options_,
              [&](const CorpusPiece& p) { expected.emplace_back(p.text), continues.push_back(!p.starts_document); });
  for (size_t bytes : {size_t(1), size_t(5000), size_t(1) << 20}) {
    found.clear(), found_continues.clear();
    TextBatchReader reader(sources_, options_, bytes);
    TextBatch batch;
    while (reader.next(batch)) {
      ASSERT_FALSE(batch.pieces.empty());
      for (std::string_view text : batch.texts()) found.emplace_back(text);
      for (uint8_t c : batch.continues()) found_continues.push_back(c);
    }
    EXPECT_EQ(found, expected) << bytes;
    EXPECT_EQ(found_continues, continues) << bytes;
    EXPECT_FALSE(reader.next(batch)) << "after the end";
  }
}

TEST_F(TextBatches, AnErrorComesAfterTheBatchesBeforeIt) {
  write_file(dir_ / "b.txt", words(9'000));  // changes its size after it was listed
  TextBatchReader reader(sources_, options_, 2000);
  TextBatch batch;
  size_t text = 0;
  try {
    while (reader.next(batch)) text += batch.text.size();
    ADD_FAILURE() << "no error";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("changed while it was read"), std::string::npos) << e.what();
  }
  EXPECT_GT(text, 25'000u);
}

TEST_F(TextBatches, AReadingEndsWithItsReader) {
  for (int batches : {0, 1, 3}) {
    TextBatchReader reader(sources_, options_, 1000);
    TextBatch batch;
    for (int i = 0; i < batches; ++i) ASSERT_TRUE(reader.next(batch));
  }
}
