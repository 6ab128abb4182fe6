#include "host/openmp_threads.h"

#include <gtest/gtest.h>

using namespace crest;

TEST(OpenmpThreads, NumbersThatCanRunStay) {
  for (const char* text : {"1", "2", "64", " 8 ", "2,3", "4, 2", "64,1,1"}) {
    OpenmpThreads checked = checked_openmp_threads(text, 2);
    EXPECT_EQ(checked.use, text);
    EXPECT_EQ(checked.note, "");
  }
  EXPECT_EQ(checked_openmp_threads("500", 128).note, "") << "four a core";
}

TEST(OpenmpThreads, MoreThanTheMachineRunsAreLimited) {
  for (const char* text : {"65", "100000", "99999999999999999999999", "100000,2", "2,100000"}) {
    OpenmpThreads checked = checked_openmp_threads(text, 2);
    EXPECT_EQ(checked.use, "2") << text;
    EXPECT_NE(checked.note.find(text), std::string::npos) << checked.note;
  }
}

TEST(OpenmpThreads, WhatIsNoNumberCountsAsNotSet) {
  for (const char* text : {"0", "-1", "", " ", "many", "2,", ",2", "2;3", "1.5", "0x4", "2,0", "+2", "\x1b[2J"}) {
    OpenmpThreads checked = checked_openmp_threads(text, 2);
    EXPECT_EQ(checked.use, "") << text;
    EXPECT_NE(checked.note.find("ignoring it"), std::string::npos) << text;
    EXPECT_EQ(checked.note.find('\x1b'), std::string::npos);
  }
}
