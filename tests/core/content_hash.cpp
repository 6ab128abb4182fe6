#include "core/content_hash.h"

#include <gtest/gtest.h>

#include <string>

using namespace crest;

static std::string hash_of(std::string_view text, size_t part = SIZE_MAX) {
  ContentHash h;
  for (size_t i = 0; i < text.size(); i += std::min(part, text.size() - i))
    h.update(text.data() + i, std::min(part, text.size() - i));
  return h.hex();
}

// Values of xxh128sum 0.8: a key of the cache outlives a build.
TEST(ContentHash, IsXxh3With128Bits) {
  EXPECT_EQ(hash_of(""), "99aa06d3014798d86001c324468d497f");
  EXPECT_EQ(hash_of("a"), "a96faf705af16834e6c632b61e964e1f");
  EXPECT_EQ(hash_of("Nobody inspects the spammish repetition"), "a32c6f55b80b5f449f1a957522431b91");
}

TEST(ContentHash, PartsGiveTheHashOfTheWhole) {
  std::string text;
  for (int i = 0; i < 500; ++i) text += char(i * 7 % 251);
  for (size_t size : {0, 1, 31, 32, 33, 64, 100, 500})
    for (size_t part : {1, 3, 31, 32, 33, 64, 499})
      EXPECT_EQ(hash_of(text.substr(0, size), part), hash_of(text.substr(0, size))) << size << " in parts of " << part;
}

TEST(ContentHash, EveryBitCounts) {
  std::string text(200, 'x');
  std::string before = hash_of(text);
  for (size_t bit = 0; bit < 8 * text.size(); ++bit) {
    std::string other = text;
    other[bit / 8] = char(other[bit / 8] ^ 1 << bit % 8);
    EXPECT_NE(hash_of(other), before) << bit;
  }
}
