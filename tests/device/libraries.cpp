// Crest's libraries: their files, and what brings a missing one.
#include "device/libraries.h"

#include <gtest/gtest.h>

#include <filesystem>

using namespace crest;

TEST(Libraries, FilesOfTheLoadedOnesAreKnown) {
  auto states = library_states();
  ASSERT_EQ(states.size(), 2u);
  EXPECT_EQ(states[0].name, "oneDNN");
  for (auto& l : states) {
    EXPECT_FALSE(l.version.empty());
    EXPECT_TRUE(std::filesystem::exists(l.path)) << l.path;
    EXPECT_EQ(std::filesystem::path(l.path).filename().string().substr(0, 3), "lib") << l.path;
    EXPECT_EQ(l.install, "");
  }
  auto versions = library_versions();
  ASSERT_EQ(versions.size(), 2u);
  EXPECT_EQ(versions[1].second, states[1].version);
}

TEST(Libraries, TheCommandForAMissingOneFitsTheVersionOfCuda) {
  EXPECT_EQ(install_command("cuDNN", 13), "pip install nvidia-cudnn-cu13");
  EXPECT_EQ(install_command("cuBLASLt", 13), "pip install nvidia-cublas");
  EXPECT_EQ(install_command("cuBLASLt", 12), "pip install nvidia-cublas-cu12");
  EXPECT_EQ(install_command("NVRTC", 12), "pip install nvidia-cuda-nvrtc-cu12");
  EXPECT_EQ(install_command("NVRTC", 11), "");
  EXPECT_EQ(install_command("NVIDIA driver", 13), "");
}
