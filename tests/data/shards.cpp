#include "data/shards.h"

#include <cstring>
#include <numeric>

#include "data/helpers.h"

using namespace crest;
using namespace crest::test;
namespace fs = std::filesystem;

static std::vector<uint32_t> counting(size_t n, uint32_t vocab) {
  std::vector<uint32_t> t(n);
  for (size_t i = 0; i < n; ++i) t[i] = uint32_t(i * 7919 % vocab);
  return t;
}

static void expect_tokens(const ShardReader& r, const std::vector<uint32_t>& wanted) {
  ASSERT_EQ(r.tokens(), wanted.size());
  std::vector<int32_t> got(wanted.size());
  r.read(0, got.size(), got.data());
  for (size_t i = 0; i < got.size(); ++i) ASSERT_EQ(uint32_t(got[i]), wanted[i]) << i;
}

TEST(Shards, WrittenShardsHaveLlmcsLayoutAndReadBack) {
  DataFolder dir;
  auto tokens = counting(20000, 50257);
  ShardWriter w(dir.path(), "train", 50257);
  w.append(tokens);
  w.finish();
  std::string raw = read_file(dir / "train-000000.bin");
  ASSERT_EQ(raw.size(), 1024 + 40000u);
  int32_t header[3];
  std::memcpy(header, raw.data(), 12);
  EXPECT_EQ(header[0], 20240520);
  EXPECT_EQ(header[1], 1);
  EXPECT_EQ(header[2], 20000);
  uint16_t second;
  std::memcpy(&second, raw.data() + 1026, 2);
  EXPECT_EQ(second, tokens[1]);
  expect_tokens(ShardReader(dir / "train-000000.bin", 50257), tokens);
}

TEST(Shards, LargeVocabulariesAreWrittenAsUint32) {
  DataFolder dir;
  auto tokens = counting(9000, 128256);
  ShardWriter w(dir.path(), "val", 128256);
  w.append(tokens);
  w.finish();
  ShardReader r(dir / "val-000000.bin", 128256);
  EXPECT_EQ(r.header().format, ShardFormat::llmc_u32);
  EXPECT_EQ(fs::file_size(dir / "val-000000.bin"), 1024 + 36000u);
  expect_tokens(r, tokens);
}

TEST(Shards, WriterStartsANewFileAtTheLimitAndLeavesNoTemporaryFile) {
  DataFolder dir;
  auto tokens = counting(25, 100);
  {
    ShardWriter w(dir.path(), "train", 100, 10);
    for (size_t i = 0; i < 25; i += 5) w.append(std::span(tokens).subspan(i, 5));
    w.finish();
    EXPECT_EQ(w.file_names().size(), 3u);
    EXPECT_EQ(w.total_tokens(), 25u);
  }
  EXPECT_EQ(ShardReader(dir / "train-000001.bin").tokens(), 10u);
  EXPECT_EQ(ShardReader(dir / "train-000002.bin").tokens(), 5u);
  {
    ShardWriter abandoned(dir.path(), "other", 100, 10);
    abandoned.append(std::span(tokens).subspan(0, 3));
  }
  EXPECT_EQ(std::distance(fs::directory_iterator(dir.path()), fs::directory_iterator()), 3);
}

TEST(Shards, CutShortAtEveryByteIsAnErrorThatNamesTheFile) {
  DataFolder dir;
  ShardWriter w(dir.path(), "train", 300);
  w.append(counting(40, 300));
  w.finish();
  std::string whole = read_file(dir / "train-000000.bin");
  for (size_t n = 0; n < whole.size(); ++n) {
    // Below four bytes there is no magic number: zero to three bytes can only be a short headerless
    // file.
    write_file(dir / "cut.bin", whole.substr(0, n));
    if (n == 2) continue;  // one valid nanoGPT token
    std::string message = error_of([&] { ShardReader r(dir / "cut.bin", 300); });
    EXPECT_NE(message.find("cut.bin"), std::string::npos) << n;
    if (n >= 4) {
      EXPECT_NE(message.find("cut short"), std::string::npos) << n << message;
    }
  }
  write_file(dir / "long.bin", whole + "xy");
  EXPECT_ERROR(ShardReader(dir / "long.bin"), "2 bytes more");
}

TEST(Shards, CutShortWhileOpenIsAnErrorNotASignal) {
  DataFolder dir;
  ShardWriter w(dir.path(), "train", 300);
  w.append(counting(4000, 300));
  w.finish();
  ShardReader r(dir / "train-000000.bin", 300);
  fs::resize_file(dir / "train-000000.bin", 1024 + 101);
  std::vector<int32_t> out(4000);
  r.read(0, 50, out.data());
  EXPECT_ERROR(r.read(0, 4000, out.data()), "ends at byte 1125, before token 50");
  EXPECT_ERROR(r.read(3999, 2, out.data()), "the shard has 4000");
}

TEST(Shards, NanogptFilesHaveNoHeader) {
  DataFolder dir;
  auto tokens = counting(1000, 50257);
  std::string raw;
  for (uint32_t t : tokens) raw += char(t), raw += char(t >> 8);
  write_file(dir / "train.bin", raw);
  ShardReader r(dir / "train.bin", 50257);
  EXPECT_EQ(r.header().format, ShardFormat::nanogpt);
  expect_tokens(r, tokens);
  write_file(dir / "odd.bin", raw + "\x01");
  EXPECT_ERROR(ShardReader(dir / "odd.bin"), "not a whole number");
}

TEST(Shards, ForeignFilesAreNamed) {
  DataFolder dir;
  auto header = [](std::vector<int32_t> words) {
    std::string s(1024, '\0');
    std::memcpy(s.data(), words.data(), words.size() * 4);
    return s;
  };
  std::vector<std::pair<std::string, std::string>> cases = {
      {header({20240326, 3}), "llm.c model"},
      {header({20240520, 2, 0}), "version 2"},
      {header({20240801, 1, 0}), "version 1"},
      {header({20240520, 1, -5}), "-5 tokens"},
      {header({20240520, 1, 1 << 30}), "cut short"},
      {header({int32_t(__builtin_bswap32(20240520)), 1, 0}), "byte order"},
      {std::string("\x1f\x8b\x08\x00", 4), "gzip"},
      {std::string("PK\x03\x04zz", 6), "PyTorch"},
      {"\x93NUMPY..", "NumPy"},
      {"To be, or not to be, that is the question.", "text file"},
      {"", "empty"}};
  for (auto& [content, part] : cases) {
    write_file(dir / "x.bin", content);
    EXPECT_ERROR(ShardReader(dir / "x.bin"), part);
  }
  EXPECT_ERROR(ShardReader(dir / "absent.bin"), "cannot open");
  EXPECT_ERROR(ShardReader(dir.path()), "folder");
}

TEST(Shards, TokenBeyondTheVocabularyNamesFileAndPosition) {
  DataFolder dir;
  auto tokens = counting(30000, 100);
  tokens[23456] = 100;
  ShardWriter w(dir.path(), "train", 101);
  w.append(tokens);
  w.finish();
  ShardReader r(dir / "train-000000.bin", 100);
  std::vector<int32_t> out(30000);
  EXPECT_ERROR(r.read(0, 30000, out.data()), "train-000000.bin: token 100 at position 23456");
  r.read(23457, 100, out.data());
  ShardWriter narrow(dir.path(), "narrow", 100);
  EXPECT_ERROR(narrow.append(tokens), "is outside a vocabulary");
}
