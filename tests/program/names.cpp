#include "program/names.h"

#include <gtest/gtest.h>

#include <set>

using namespace crest;

TEST(Names, AreUnique) {
  Names names;
  EXPECT_TRUE(names.add("x"));
  EXPECT_FALSE(names.add("x"));
  EXPECT_TRUE(names.add("x.2"));
  EXPECT_EQ(names.add_unique("x"), "x.1");
  EXPECT_EQ(names.add_unique("x"), "x.3");
  EXPECT_EQ(names.add_unique("y"), "y");
  EXPECT_EQ(names.add_unique("y"), "y.1");
  EXPECT_EQ(names.add_unique("x.1"), "x.1.1");
}

TEST(Names, StayWhatTheyWereWhileTheIndexGrows) {
  Names names;
  std::set<std::string> all;
  for (int i = 0; i < 20'000; ++i) {
    std::string name = i % 500 == 0 ? std::string(70'000, 'a' + char(i / 500 % 26)) + std::to_string(i)
                                    : "value." + std::to_string(i * 7);
    EXPECT_TRUE(names.add(name));
    name.back() = '!';  // the index has its own copy
  }
  for (int i = 0; i < 20'000; ++i)
    if (i % 500) {
      EXPECT_FALSE(names.add("value." + std::to_string(i * 7))) << i;
    }
  for (int i = 0; i < 1000; ++i) EXPECT_TRUE(all.insert(names.add_unique("value.7")).second);
}
