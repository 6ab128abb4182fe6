// The GPU of a rank, and refusals.
#include "device/rank_device.h"

#include <gtest/gtest.h>

#include <thread>

#include "comm/local.h"
#include "core/error.h"
#include "device/find.h"

namespace crest::test {

namespace {

// The device, or the exit code and message of the refusal.
std::string chosen(const std::string& spec, const RankPlace& place, int gpus) {
  try {
    return device_of_rank(spec, place, gpus);
  } catch (const Error& e) {
    return std::to_string(int(e.code())) + ": " + e.what();
  }
}

}  // namespace

TEST(RankDevice, EachRankOfAMachineTakesAGpuOfItsOwn) {
  for (const char* spec : {"auto", "cuda"}) {
    EXPECT_EQ(chosen(spec, {0, 2}, 2), "cuda:0");
    EXPECT_EQ(chosen(spec, {1, 2}, 2), "cuda:1");
    EXPECT_EQ(chosen(spec, {3, 4}, 8), "cuda:3");
    EXPECT_EQ(chosen(spec, {1, 2}, 1), "cuda:0") << "a launcher that binds a GPU to each task";
  }
}

TEST(RankDevice, WhatIsGivenStays) {
  EXPECT_EQ(chosen("cpu", {1, 2}, 2), "cpu");
  EXPECT_EQ(chosen("auto", {1, 2}, 0), "auto");
  EXPECT_EQ(chosen("cuda", {1, 2}, 0), "cuda") << "find_device() says why there is none";
  EXPECT_EQ(chosen("cuda:1", {0, 1}, 2), "cuda:1") << "one rank on each machine";
  for (const char* wrong : {"cudax", "cuda:", "cuda:x", "cuda:1x", "cuda1", "cuda:99999999999999999999"}) {
    EXPECT_EQ(chosen(wrong, {1, 2}, 2), wrong) << "find_device() says that it is none";
    try {
      find_device(wrong, 1);
      ADD_FAILURE() << wrong;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), Exit::usage);
      EXPECT_EQ(e.problem(), "'" + std::string(wrong) + "' is not a device");
    }
  }
}

TEST(RankDevice, OneGpuForSeveralRanksIsRefused) {
  std::string named = chosen("cuda:1", {1, 2}, 2);
  EXPECT_EQ(named.substr(0, 2), "2:") << named;
  EXPECT_NE(named.find("--device cuda:1 is one GPU, but 2 ranks run on this machine"), std::string::npos) << named;
  for (RankPlace place : {RankPlace{0, 3, false}, RankPlace{2, 3, true}}) {
    std::string few = chosen("cuda", place, 2);
    EXPECT_EQ(few.substr(0, 2), "4:") << few;
    EXPECT_NE(few.find("3 ranks on this machine need as many GPUs, but 2 GPUs are visible"), std::string::npos) << few;
    EXPECT_NE(few.find("--ranks 2, or --device cpu"), std::string::npos) << few;
  }
  EXPECT_NE(chosen("auto", {0, 2, false}, 1).find("but 1 GPU is visible"), std::string::npos);
}

TEST(RankDevice, RanksWithOneGpuAreFound) {
  auto communicators = make_local_communicators(3);
  for (bool same : {false, true}) {
    std::vector<std::string> errors(3);
    std::vector<std::thread> threads;
    for (int r = 0; r < 3; ++r)
      threads.emplace_back([&, r] {
        try {
          check_one_each(*communicators[size_t(r)], same && r == 2 ? "GPU 1" : "GPU " + std::to_string(r));
        } catch (const Error& e) {
          errors[size_t(r)] = e.what();
        }
      });
    for (auto& t : threads) t.join();
    for (auto& e : errors) EXPECT_EQ(e.empty(), !same) << e;
    if (same) {
      EXPECT_NE(errors[0].find("ranks 1 and 2 have the same GPU"), std::string::npos) << errors[0];
    }
  }
}

}  // namespace crest::test
