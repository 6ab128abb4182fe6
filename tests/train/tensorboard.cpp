#include "train/tensorboard.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "core/error.h"
#include "core/temporary_folder.h"

using namespace crest;
namespace fs = std::filesystem;

namespace {

std::string read_all(const std::string& path) {
  std::stringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

uint64_t fixed(const std::string& data, size_t at, int bytes) {
  uint64_t v = 0;
  for (int i = 0; i < bytes; ++i) v |= uint64_t(uint8_t(data.at(at + size_t(i)))) << (8 * i);
  return v;
}

// Splits a file into the payloads of its records and checks both checksums.
std::vector<std::string> records(const std::string& file) {
  std::vector<std::string> all;
  for (size_t at = 0; at < file.size();) {
    uint64_t length = fixed(file, at, 8);
    EXPECT_EQ(fixed(file, at + 8, 4), masked_crc32c(file.substr(at, 8)));
    all.push_back(file.substr(at + 12, length));
    EXPECT_EQ(fixed(file, at + 12 + length, 4), masked_crc32c(all.back()));
    at += 16 + length;
  }
  return all;
}

}  // namespace

TEST(Tensorboard, Crc32cKnownVectors) {
  EXPECT_EQ(crc32c(""), 0u);
  EXPECT_EQ(crc32c("123456789"), 0xE3069283u);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8A9136AAu);    // RFC 3720 B.4
  EXPECT_EQ(crc32c(std::string(32, '\xff')), 0x62A8AB43u);  // RFC 3720 B.4
  std::string rising, falling;
  for (int i = 0; i < 32; ++i) rising += char(i), falling += char(31 - i);
  EXPECT_EQ(crc32c(rising), 0x46DD794Eu);   // RFC 3720 B.4
  EXPECT_EQ(crc32c(falling), 0x113FDB5Cu);  // RFC 3720 B.4
  uint32_t c = 0xE3069283u;
  EXPECT_EQ(masked_crc32c("123456789"), ((c >> 15) | (c << 17)) + 0xA282EAD8u);
}

TEST(Tensorboard, Framing) {
  std::string r = tfrecord("abc");
  ASSERT_EQ(r.size(), 8u + 4 + 3 + 4);
  EXPECT_EQ(r.substr(0, 8), std::string("\x03\0\0\0\0\0\0\0", 8));
  EXPECT_EQ(r.substr(12, 3), "abc");
  EXPECT_EQ(fixed(r, 8, 4), masked_crc32c(r.substr(0, 8)));
  EXPECT_EQ(fixed(r, 15, 4), masked_crc32c("abc"));
}

TEST(Tensorboard, EventBytes) {
  // wall_time 1.5 (double), step 300 (varint ac 02), summary { value { tag "a/b", simple_value 0.5
  // } }
  std::string want = std::string("\x09\0\0\0\0\0\0\xf8\x3f", 9) + std::string("\x10\xac\x02", 3) +
                     std::string(
                         "\x2a\x0c\x0a\x0a\x0a\x03"
                         "a/b\x15\0\0\0\x3f",
                         14);
  EXPECT_EQ(scalar_event("a/b", 300, 0.5f, 1.5), want);
}

TEST(Tensorboard, WritesAFile) {
  const char* keep =
      std::getenv("CREST_TENSORBOARD_OUT");  // tests/tools/check_tensorboard.py looks at the files with the real reader
  TemporaryFolder temporary;
  const Folder folder = Folder::open(keep ? keep : temporary.path());
  std::string path, second;
  {
    TensorboardWriter w(folder), other(folder);
    path = w.path(), second = other.path();
    EXPECT_NE(path, second);
    w.scalar("train/loss", 1, 4.25, 1000);
    w.scalar("train/loss", 2, NAN);
    w.flush();
    EXPECT_EQ(records(read_all(path)).size(), 3u) << "flushed before the end";
  }
  auto all = records(read_all(path));
  ASSERT_EQ(all.size(), 3u);
  EXPECT_EQ(all[0].substr(9),
            "\x1a\x0d"
            "brain.Event:2");
  EXPECT_EQ(all[1], scalar_event("train/loss", 1, 4.25f, 1000));
  EXPECT_NE(path.find("tfevents"), std::string::npos);
  EXPECT_GT(std::bit_cast<double>(fixed(all[2], 1, 8)), 1.7e9) << "wall time now";
}

TEST(Tensorboard, SaysWhereItCannotWrite) {
  TemporaryFolder temporary;
  fs::create_directory(temporary / "gone");
  const Folder folder = Folder::open(temporary / "gone");
  fs::remove(temporary / "gone");
  EXPECT_THROW(TensorboardWriter{folder}, Error);
}
