#include "train/run_files.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <thread>

#include "core/error.h"
#include "core/temporary_folder.h"

using namespace crest;

// Remains of a kill, a full disk or an editor in a log do not become steps.
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
  EXPECT_EQ(files.continue_at(2), 7) << "a kill cut the last line: it is no damage";
  EXPECT_GT(std::filesystem::file_size(folder + "/log.jsonl.damaged"), size_t(1 << 20));
  std::stringstream kept;
  kept << std::ifstream(folder + "/log.jsonl").rdbuf();
  EXPECT_EQ(kept.str(), one + "\n" + two + "\n");
  std::filesystem::remove_all(folder);
}

// Threads stand for processes. Making the folder takes the name.
TEST(FreshFolder, OfManyAtOnceEachHasItsOwn) {
  TemporaryFolder temporary;
  const std::string root = temporary.path();
  constexpr int many = 8, rounds = 20;
  for (int round = 0; round < rounds; ++round) {
    std::vector<std::unique_ptr<FreshFolder>> folders(many);
    std::vector<std::thread> threads;
    for (auto& folder : folders)
      threads.emplace_back([&] { folder = std::make_unique<FreshFolder>(root + "/runs", "name"); });
    for (auto& thread : threads) thread.join();
    std::set<std::string> names;
    for (auto& folder : folders) names.insert(folder->path());
    EXPECT_EQ(names.size(), size_t(many));
    EXPECT_TRUE(names.count(root + "/runs/name") && names.count(root + "/runs/name-8")) << *names.rbegin();
  }
  EXPECT_FALSE(std::filesystem::exists(root + "/runs")) << "empty folders are removed";
}

TEST(FreshFolder, StaysWhenARunBeginsInIt) {
  TemporaryFolder temporary;
  const std::string root = temporary.path();
  std::string path;
  {
    FreshFolder folder(root, "name");
    path = folder.path();
    RunFiles::create(path, false, true);
    EXPECT_THROW(RunFiles::create(path, false, true), Error) << "it is not empty any more";
  }
  EXPECT_TRUE(std::filesystem::exists(path + "/config.toml"));
}

TEST(FreshFolder, TakesAnyName) {
  TemporaryFolder temporary;
  const std::string root = temporary.path();
  for (auto& [name, plain] :
       std::vector<std::pair<std::string, std::string>>{{"", "run"},
                                                        {".", "run"},
                                                        {"..", "run"},
                                                        {"a b\n\x7f", "a b\n\x7f"},
                                                        {"\xff\xc3\xa4", "_\xc3\xa4"},
                                                        {"a/b", "a_b"},
                                                        {std::string(300, 'x'), std::string(200, 'x')}})
    EXPECT_EQ(FreshFolder(root, name).path(), root + "/" + plain);
}
