#include "core/text.h"

#include <gtest/gtest.h>

#include "core/shell_word.h"

using namespace crest;

// Names come from files of strangers. They must not move the cursor, clear the screen or turn text
// around.
TEST(Printable, WhatATerminalWouldObeyIsWritten) {
  EXPECT_EQ(printable("plain \xC3\xA4\xE2\x82\xAC\xF0\x9F\x99\x82"), "plain \xC3\xA4\xE2\x82\xAC\xF0\x9F\x99\x82");
  EXPECT_EQ(printable(std::string_view("\x1b[2J\0\x7f\n", 7)), "\\x1b[2J\\x00\\x7f\\x0a");
  EXPECT_EQ(printable("\xC2\x9B"
                      "31m"),
            "\\x9b31m");  // CSI as a character
  EXPECT_EQ(printable("\x9B"
                      "31m"),
            "\\x9b31m");                                                // and as a byte
  EXPECT_EQ(printable("gpt\xE2\x80\xAEslx.exe"), "gpt\\u202eslx.exe");  // right-to-left override
  EXPECT_EQ(printable("\xE2\x81\xA6\xD8\x9C\xE2\x80\x8F"), "\\u2066\\u061c\\u200f");
  EXPECT_EQ(printable("cut \xE2\x82"), "cut \\xe2\\x82");
  EXPECT_EQ(printable("\xED\xA0\x80"), "\\xed\\xa0\\x80");  // a surrogate
  EXPECT_EQ(printable("aaaa", 2), "aa...");
}

TEST(ShellWord, IsOneWordWhateverItHolds) {
  EXPECT_EQ(shell_word("a/b-c_1.txt"), "a/b-c_1.txt");
  EXPECT_EQ(shell_word(""), "''");
  EXPECT_EQ(shell_word("it's $HOME"), "'it'\\''s $HOME'");
  EXPECT_EQ(shell_path("my file"), "'my file'");
  EXPECT_EQ(shell_path("-rf"), "./-rf");
  EXPECT_EQ(shell_path("-"), "-");
  EXPECT_EQ(shell_path("a\x1b[2J"), "$'a\\033[2J'");
  EXPECT_EQ(shell_path("\xff it's \\ \xE2\x80\xAE\xC3\xA4"), "$'\\377 it\\'s \\\\ \\342\\200\\256\xC3\xA4'");
  EXPECT_EQ(shell_word("a\nb"), "'a\nb'") << "for a shell that only knows POSIX";
}

TEST(Text, NumbersOfThings) {
  EXPECT_EQ(format_number_of(1, "rank"), "1 rank");
  EXPECT_EQ(format_number_of(0, "token"), "0 tokens");
  EXPECT_EQ(format_number_of(4, "micro step"), "4 micro steps");
}

TEST(Text, OnlyANearNameIsSuggested) {
  std::vector<std::string> commands = {"train", "bench", "profile", "runs", "sample", "plan"};
  for (auto& [word, name] : std::vector<std::pair<std::string, std::string>>{{"tran", "train"},
                                                                             {"bnech", "bench"},
                                                                             {"pro", "profile"},
                                                                             {"sampel", "sample"},
                                                                             {"run", "runs"},
                                                                             {"paln", "plan"}})
    EXPECT_EQ(nearest(word, commands), name);
  for (auto& word : {"tune", "exec", "foo", "", "x", "help"}) EXPECT_EQ(nearest(word, commands), "") << word;
  std::vector<std::string> flags = {"--to", "--out", "--dtype"};
  EXPECT_EQ(nearest("--run", flags), "") << "two of three letters";
  EXPECT_EQ(nearest("--uot", flags), "--out");
  EXPECT_EQ(nearest("--", flags), "");
}
