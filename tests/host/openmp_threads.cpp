#include "host/openmp_threads.h"

#include <gtest/gtest.h>

using namespace crest;

TEST(OpenmpThreads, NumbersThatCanRunStay) {
  for (const char* text : {"1", "2", "64", " 8 ", "2,3", "4, 2", "64,1,1"}) {
    OpenmpThreads mended = mend_openmp_threads(text, 2);
    EXPECT_EQ(mended.use, text);
    EXPECT_EQ(mended.note, "");
  }
  EXPECT_EQ(mend_openmp_threads("500", 128).note, "") << "four a core";
}

TEST(OpenmpThreads, MoreThanTheMachineRunsAreLimited) {
  for (const char* text : {"65", "100000", "99999999999999999999999", "100000,2", "2,100000"}) {
    OpenmpThreads mended = mend_openmp_threads(text, 2);
    EXPECT_EQ(mended.use, "2") << text;
    EXPECT_NE(mended.note.find(text), std::string::npos) << mended.note;
  }
}

TEST(OpenmpThreads, WhatIsNoNumberCountsAsNotSet) {
  for (const char* text : {"0", "-1", "", " ", "many", "2,", ",2", "2;3", "1.5", "0x4", "2,0", "+2", "\x1b[2J"}) {
    OpenmpThreads mended = mend_openmp_threads(text, 2);
    EXPECT_EQ(mended.use, "") << text;
    EXPECT_NE(mended.note.find("ignoring it"), std::string::npos) << text;
    EXPECT_EQ(mended.note.find('\x1b'), std::string::npos);
  }
}
