// Programs printed by commands: tests/passes/*.prog (before and after each pass: golden.cpp). The
// first line of a file is its command,
//   # crest program ARGUMENTS
// run in this folder; the command must print the rest of the file, which must parse back. A setting
// on and off, before and after: each is one file. To make one:
//   cd tests/passes && (A='program ...'; echo "# crest $A"; crest $A) > x.prog
#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "crest_binary.h"
#include "program/text.h"

using namespace crest;
namespace fs = std::filesystem;

namespace {

const fs::path folder = fs::path(CREST_TEST_DIR) / "passes";

std::vector<std::string> goldens() {
  std::vector<std::string> names;
  for (auto& entry : fs::directory_iterator(folder))
    if (entry.path().extension() == ".prog") names.push_back(entry.path().stem().string());
  std::sort(names.begin(), names.end());
  return names;
}

std::string output_of(const std::string& arguments) {
  std::string command = "cd '" + folder.string() + "' && '" + crest::test::crest_binary() + "' " + arguments, text;
  FILE* pipe = popen(command.c_str(), "r");
  char buffer[4096];
  while (size_t n = fread(buffer, 1, sizeof buffer, pipe)) text.append(buffer, n);
  EXPECT_EQ(pclose(pipe), 0) << command;
  return text;
}

class ProgFile : public testing::TestWithParam<std::string> {};

}  // namespace

TEST_P(ProgFile, IsWhatTheCommandPrints) {
  std::ifstream in(folder / (GetParam() + ".prog"));
  std::string command, prefix = "# crest ";
  std::getline(in, command);
  ASSERT_EQ(command.rfind(prefix, 0), 0u) << "the first line must be '# crest program ...'";
  std::stringstream rest;
  rest << in.rdbuf();
  EXPECT_EQ(output_of(command.substr(prefix.size())), rest.str());
  EXPECT_EQ(print(parse_program(rest.str(), GetParam())), rest.str());
}

INSTANTIATE_TEST_SUITE_P(Passes, ProgFile, testing::ValuesIn(goldens()), [](auto& info) { return info.param; });
