#include "train/run_files.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

using namespace crest;

// What a kill, a full disk or somebody's editor left in a log is not taken for a step, whatever it is.
TEST(RunFiles, WhatIsNoRowOfTheLogIsLeftOut) {
  std::string folder = testing::TempDir() + "crest-run-files";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  std::string one = "{\"step\": 1, \"loss\": 3.5}", two = "{\"step\": 2, \"loss\": 3.25}";
  std::ofstream(folder + "/log.jsonl") << one << "\n{\"step\": 2, \"lo\n"
                                       << std::string(200000, '[') << "\n{\"step\": 1, \"x\": \""
                                       << std::string(1 << 20, 'x')
                                       << "\"}\n\n[1]\n{\"step\": 1e400}\n{\"step\": \"1\"}\n"
                                       << two << "\n{\"step\": 5, \"loss\": 1}\n{\"step\": 1";
  RunFiles files = RunFiles::open(folder);
  files.continue_at(2);
  std::stringstream kept;
  kept << std::ifstream(folder + "/log.jsonl").rdbuf();
  EXPECT_EQ(kept.str(), one + "\n" + two + "\n");
  std::filesystem::remove_all(folder);
}
