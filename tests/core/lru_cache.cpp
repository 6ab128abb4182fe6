#include "core/lru_cache.h"

#include <gtest/gtest.h>

#include <memory>
#include <stdexcept>
#include <string>

using crest::LruCache;

TEST(LruCache, MakesOnceAndKeepsWhatWasUsedLast) {
  LruCache<int, std::string> cache(3);
  int made = 0;
  auto find = [&](int key) {
    return cache.find_or_make(key, [&] {
      ++made;
      return std::to_string(key);
    });
  };
  for (int key : {1, 2, 3, 1, 1, 2, 3}) EXPECT_EQ(find(key), std::to_string(key));
  EXPECT_EQ(made, 3);
  find(1), find(4);  // 2 was not used the longest
  EXPECT_EQ(cache.size(), 3u);
  EXPECT_EQ(made, 4);
  find(1), find(3), find(4);
  EXPECT_EQ(made, 4);
  find(2);
  EXPECT_EQ(made, 5);
}

TEST(LruCache, WhatWentStaysValidWhereItIsInUse) {
  LruCache<int, std::shared_ptr<const int>> cache(1);
  auto make = [](int x) { return [x] { return std::make_shared<const int>(x); }; };
  auto one = cache.find_or_make(1, make(1));
  for (int key = 2; key < 100; ++key) cache.find_or_make(key, make(key));
  EXPECT_EQ(cache.size(), 1u);
  EXPECT_EQ(*one, 1);
}

TEST(LruCache, WhatThrowsIsAskedAgain) {
  LruCache<int, int> cache(2);
  EXPECT_THROW(cache.find_or_make(1, []() -> int { throw std::runtime_error("no"); }), std::runtime_error);
  EXPECT_EQ(cache.size(), 0u);
  EXPECT_EQ(cache.find_or_make(1, [] { return 7; }), 7);
}
