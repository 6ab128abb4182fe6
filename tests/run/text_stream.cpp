#include "run/text_stream.h"

#include <gtest/gtest.h>

using namespace crest;

TEST(TextStream, HoldsBackIncompleteCharacters) {
  std::string text = "a\xC3\xA4 \xE2\x82\xAC \xF0\x9F\x98\x80!";  // 1, 2, 3 and 4 bytes
  TextStream stream;
  std::string shown;
  std::vector<std::string> pieces;
  for (char c : text) {
    std::string piece = stream.add(std::string(1, c));
    shown += piece;
    if (!piece.empty()) pieces.push_back(piece);
  }
  EXPECT_EQ(shown, text);
  EXPECT_EQ(pieces, (std::vector<std::string>{"a", "\xC3\xA4", " ", "\xE2\x82\xAC", " ", "\xF0\x9F\x98\x80", "!"}));
  EXPECT_EQ(stream.add("\xE2\x82"), "");
  EXPECT_EQ(stream.finish(), "\xE2\x82");
}

TEST(TextStream, BytesThatAreNotUtf8PassThroughAtOnce) {
  TextStream stream;
  EXPECT_EQ(stream.add("\x80"), "\x80");          // continuation without a lead byte
  EXPECT_EQ(stream.add("\xFF"), "\xFF");          // never a lead byte
  EXPECT_EQ(stream.add("\xC3"), "");              // could become a character
  EXPECT_EQ(stream.add("("), "\xC3(");            // does not
  EXPECT_EQ(stream.add("\xE0\x80"), "\xE0\x80");  // overlong
  EXPECT_EQ(stream.add("\xED\xA0"), "\xED\xA0");  // surrogate
  EXPECT_EQ(stream.add("\xF4\x90"), "\xF4\x90");  // above U+10FFFF
  EXPECT_EQ(stream.add("x\xF0\x9F\x98"), "x");
}

TEST(TextStream, StopsBeforeTheStopText) {
  TextStream stream({"END", "", "\n\n"});
  EXPECT_EQ(stream.add("one E"), "one ");
  EXPECT_EQ(stream.add("N"), "");
  EXPECT_EQ(stream.add("x"), "ENx");
  EXPECT_EQ(stream.add("\n"), "");
  EXPECT_EQ(stream.add("two EN"), "\ntwo ");
  EXPECT_FALSE(stream.stopped());
  EXPECT_EQ(stream.add("D after"), "");
  EXPECT_TRUE(stream.stopped());
  EXPECT_EQ(stream.add("more"), "");
  EXPECT_EQ(stream.finish(), "");
}

TEST(TextStream, TheFirstStopTextInTheTextCounts) {
  TextStream stream({"later", "so"});
  EXPECT_EQ(stream.add("first so then later"), "first ");
  EXPECT_TRUE(stream.stopped());
  TextStream held({"abc"});
  EXPECT_EQ(held.add("xab"), "x");
  EXPECT_EQ(held.finish(), "ab");  // the generation ended: it was no stop text
}

TEST(TextStream, DisplayableHasNoControlCharacters) {
  EXPECT_EQ(displayable("plain\ttext\n\xC3\xA4\xE2\x82\xAC"), "plain\ttext\n\xC3\xA4\xE2\x82\xAC");
  EXPECT_EQ(displayable("a\x1B[31mb\r\x7F"), "a\xEF\xBF\xBD[31mb\xEF\xBF\xBD\xEF\xBF\xBD");
  EXPECT_EQ(displayable("\xC2\x9B"
                        "2J"),
            "\xEF\xBF\xBD"
            "2J");  // CSI as one character
  EXPECT_EQ(displayable("\xC2\xA0"), "\xC2\xA0");
  EXPECT_EQ(displayable("x\xE2\x82"), "x\xEF\xBF\xBD");
}
