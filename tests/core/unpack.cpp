#include "core/unpack.h"

#include <cstring>

#include "core/error.h"
#include "core/random.h"
#include "packed.h"

using namespace crest;
using namespace crest::test;

namespace {

std::string words(size_t n) {
  std::string text;
  for (uint64_t i = 0; text.size() < n; ++i) text += "word" + std::to_string(random_bits(1, 2, i) % 5000) + " ";
  return text;
}

// All output, read in blocks; the error instead if there is one.
std::string unpacked(const std::string& packed, size_t block = 1000, uint64_t most = UINT64_MAX) {
  size_t at = 0;
  try {
    Unpacker unpacker(
        compression_of(packed), "file.gz",
        [&](char* to, size_t bytes) {
          size_t n = std::min(bytes, packed.size() - at);
          std::memcpy(to, packed.data() + at, n);
          at += n;
          return n;
        },
        most);
    std::string text, part(block, '\0');
    while (true) {
      size_t n = unpacker.read(part.data(), block);
      text.append(part, 0, n);
      if (n < block) return text;
    }
  } catch (const Error& e) {
    return e.what();
  }
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST(Unpack, EveryFormatInBlocksOfEverySize) {
  for (auto& packer : packers)
    for (size_t size : {0, 1, 5000, 1000000})
      for (size_t block : {1, 999, 1 << 20}) {
        if (size / block > 10000) continue;
        std::string text = words(size);
        EXPECT_TRUE(unpacked(packer.pack(text), block) == text) << packer.suffix << size << " " << block;
      }
  EXPECT_EQ(unpacked("plain text"), "plain text");
}

TEST(Unpack, MembersFollowEachOther) {
  for (auto& packer : packers) {
    SCOPED_TRACE(packer.suffix);
    std::string one = words(5000), two = words(300000);
    EXPECT_TRUE(unpacked(packer.pack(one) + packer.pack("") + packer.pack(two)) == one + two);
  }
  std::string text = words(1000);
  EXPECT_EQ(unpacked(gzipped(text) + std::string(700, '\0')), text) << "padding of tapes";
  EXPECT_EQ(unpacked(xz_packed(text) + std::string(8, '\0')), text) << "stream padding";
  std::string skippable("\x50\x2a\x4d\x18\x04\0\0\0abcd", 12);
  EXPECT_EQ(unpacked(skippable + zstd_packed(text) + skippable), text) << "as parallel compressors write";
}

TEST(Unpack, WhatIsCutShortIsTruncatedAtItsEnd) {
  for (auto& packer : packers) {
    std::string packed = packer.pack(words(3000));
    for (size_t size = 6; size < packed.size(); size += 7)
      EXPECT_TRUE(has(unpacked(packed.substr(0, size)),
                      "file.gz: the file cannot be unpacked: it is truncated, it ends at byte " + std::to_string(size)))
          << packer.suffix << size << unpacked(packed.substr(0, size));
  }
}

TEST(Unpack, DamageIsAnErrorWithItsPlace) {
  for (auto& packer : packers) {
    std::string text = words(400000), packed = packer.pack(text);
    int damaged = 0;
    for (size_t at = 20; at < packed.size(); at += packed.size() / 20) {
      std::string bad = packed;
      bad[at] = char(bad[at] ^ 0x55);
      std::string got = unpacked(bad);
      EXPECT_TRUE(got == text || has(got, "file.gz: the file cannot be unpacked")) << packer.suffix << at;
      damaged += got != text;
      if (has(got, "damaged at byte ")) {
        size_t place = std::stoull(got.substr(got.find("at byte ") + 8));
        EXPECT_LE(place, packed.size());
        if (packer.suffix != std::string(".zst")) {  // a text with the beginning of the block
          EXPECT_GE(place + 16, at) << packer.suffix << ": found before it is there";
        }
      }
    }
    EXPECT_GE(damaged, 19) << packer.suffix;
    EXPECT_TRUE(has(unpacked(packed + std::string(20, 'x')), "damaged")) << packer.suffix;
  }
}

TEST(Unpack, SizeAndMemoryHaveLimits) {
  for (auto& packer : packers) {
    std::string packed = packer.pack(std::string(5 << 20, 'a'));
    EXPECT_TRUE(has(unpacked(packed, 1000, 1 << 20), "file.gz: the file unpacks to more than 1.00 MiB"));
    EXPECT_EQ(unpacked(packed, 1 << 20, 5 << 20).size(), size_t(5) << 20);
  }
  // A frame of zstd with a window of 2 GiB, and a block of xz with a dictionary of 1.5 GiB.
  std::string wide("\x28\xb5\x2f\xfd\x00\xa8\x01\x00\x00", 9);
  EXPECT_TRUE(has(unpacked(wide), "window of more than 128.00 MiB")) << unpacked(wide);
  EXPECT_TRUE(has(unpacked(wide), "zstd -dc --long=31 file.gz > file"));
  lzma_options_lzma options;
  lzma_lzma_preset(&options, 0);
  options.dict_size = 1536u << 20;
  lzma_filter filters[] = {{LZMA_FILTER_LZMA2, &options}, {LZMA_VLI_UNKNOWN, nullptr}};
  lzma_block block{};
  uint8_t header[LZMA_BLOCK_HEADER_SIZE_MAX], flags[LZMA_STREAM_HEADER_SIZE];
  lzma_stream_flags stream{};
  stream.check = LZMA_CHECK_CRC32;
  ASSERT_EQ(lzma_stream_header_encode(&stream, flags), LZMA_OK);
  block.check = LZMA_CHECK_CRC32, block.filters = filters;
  block.compressed_size = block.uncompressed_size = LZMA_VLI_UNKNOWN;
  ASSERT_EQ(lzma_block_header_size(&block), LZMA_OK);
  ASSERT_EQ(lzma_block_header_encode(&block, header), LZMA_OK);
  std::string large(reinterpret_cast<char*>(flags), sizeof flags);
  large.append(reinterpret_cast<char*>(header), block.header_size);
  EXPECT_TRUE(has(unpacked(large), "needs more than 256.00 MiB of memory")) << unpacked(large);
}

TEST(Unpack, NamesWithoutTheirSuffix) {
  EXPECT_EQ(name_inside("a/b.jsonl.gz"), "a/b.jsonl");
  EXPECT_EQ(name_inside("b.txt.zst"), "b.txt");
  EXPECT_EQ(name_inside("b.xz"), "b");
  EXPECT_EQ(name_inside("b.txt"), "b.txt");
  EXPECT_EQ(name_inside(".gz"), ".gz");
}
