// The file of choices between algorithms: it survives the process, ignores damage, and several
// processes may write it at once.
#include "backend/cuda/algorithm_cache.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <vector>

#include "core/temporary_folder.h"

namespace crest::cuda {
namespace {

namespace fs = std::filesystem;

class Cache : public testing::Test {
 protected:
  void write(const std::string& text) {
    fs::create_directories(fs::path(path_).parent_path());
    std::ofstream(path_) << text;
  }
  TemporaryFolder folder_;
  std::string path_ = folder_ / "deep/algorithms.json";
  AlgorithmCache::Choice choice_{"plain", "00ff17", 123.25};
};

TEST_F(Cache, AnotherProcessFindsWhatWasStored) {
  AlgorithmCache first(path_);
  EXPECT_EQ(first.find("8x8x8"), std::nullopt);
  first.store("8x8x8", choice_);
  EXPECT_EQ(first.problem(), "");
  EXPECT_EQ(first.find("8x8x8"), choice_);
  AlgorithmCache second(path_);
  EXPECT_EQ(second.find("8x8x8"), choice_);
  EXPECT_EQ(second.find("8x8x9"), std::nullopt);
  EXPECT_EQ(second.problem(), "");
}

TEST_F(Cache, DamageIsIgnoredAndWrittenOver) {
  const char* damaged[] = {"",
                           "{",
                           "[1, 2]",
                           "{\"format\": 1, \"choices\": {\"k\": 3}}",
                           "{\"format\": 1, \"choices\": {\"k\": {\"variant\": 1}}}",
                           "\xff\xfe\x00"};
  for (const char* text : damaged) {
    SCOPED_TRACE(text);
    write(text);
    AlgorithmCache cache(path_);
    EXPECT_NE(cache.problem(), "");
    EXPECT_EQ(cache.find("k"), std::nullopt);
    cache.store("k", choice_);
    EXPECT_EQ(AlgorithmCache(path_).find("k"), choice_);
    EXPECT_EQ(AlgorithmCache(path_).problem(), "");
  }
}

TEST_F(Cache, AFileOfAnotherFormatIsNotRead) {
  write("{\"format\": 99, \"choices\": \"something else\"}");
  AlgorithmCache cache(path_);
  EXPECT_EQ(cache.problem(), "");
  cache.store("k", choice_);
  EXPECT_EQ(AlgorithmCache(path_).find("k"), choice_);
}

TEST_F(Cache, WithoutAWritableFolderChoicesLiveInTheProcess) {
  AlgorithmCache cache("/proc/nowhere/algorithms.json");
  cache.store("k", choice_);
  EXPECT_EQ(cache.find("k"), choice_);
  EXPECT_NE(cache.problem(), "");
  AlgorithmCache without("");
  without.store("k", choice_);
  EXPECT_EQ(without.find("k"), choice_);
  EXPECT_EQ(without.problem(), "");
}

TEST_F(Cache, ConcurrentProcessesKeepEachOthersChoices) {
  constexpr int processes = 6, keys = 12;
  std::vector<pid_t> children;
  for (int p = 0; p < processes; ++p) {
    pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      AlgorithmCache cache(path_);
      for (int k = 0; k < keys; ++k)
        cache.store(std::to_string(p) + "/" + std::to_string(k), {"plain", "00", double(p * 100 + k)});
      _exit(cache.problem().empty() ? 0 : 1);
    }
    children.push_back(child);
  }
  for (pid_t child : children) {
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
  AlgorithmCache cache(path_);
  EXPECT_EQ(cache.problem(), "");
  for (int p = 0; p < processes; ++p)
    for (int k = 0; k < keys; ++k) {
      auto found = cache.find(std::to_string(p) + "/" + std::to_string(k));
      ASSERT_TRUE(found) << p << "/" << k;
      EXPECT_EQ(found->microseconds, p * 100 + k);
    }
}

TEST_F(Cache, TheFileIsNamedAfterGpuDriverAndLibrary) {
  setenv("CREST_CACHE", "/somewhere", 1);
  EXPECT_EQ(algorithm_cache_path("NVIDIA H200 (SXM)", 13000, 130100),
            "/somewhere/algorithms-nvidia-h200-sxm-13000-130100.json");
  unsetenv("CREST_CACHE");
}

TEST_F(Cache, HexadecimalRoundTrip) {
  uint8_t bytes[3] = {0, 0xff, 0x17}, back[3] = {};
  EXPECT_EQ(to_hex(bytes, 3), "00ff17");
  EXPECT_TRUE(from_hex("00ff17", back, 3));
  EXPECT_EQ(back[1], 0xff);
  EXPECT_FALSE(from_hex("00ff1", back, 3));
  EXPECT_FALSE(from_hex("00ff1g", back, 3));
}

}  // namespace
}  // namespace crest::cuda
