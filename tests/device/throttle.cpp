#include "device/throttle.h"

#include <gtest/gtest.h>

#include <ctime>

#include "backend/runtime.h"
#include "core/timer.h"
#include "device/find.h"
#include "host/environment.h"
#include "measure/cache_flush.h"

namespace crest {
namespace {

using Reasons = std::set<std::string>;

TEST(Throttle, AnAnswerHoldsForAllSamplesSinceTheOneBefore) {
  std::vector<Reasons> answers = {{}, {"power_cap"}, {"power_cap", "thermal"}};
  size_t asked = 0;
  ThrottleWatch watch([&] { return answers.at(asked++); }, 1e9);
  EXPECT_EQ(asked, 0u);
  watch.sampled(), watch.sampled();
  EXPECT_EQ(watch.last(2), (std::vector<bool>{false, false}));
  watch.sampled(), watch.sampled(), watch.sampled();
  EXPECT_EQ(asked, 1u) << "not before the interval is over";
  EXPECT_EQ(watch.last(4), (std::vector<bool>{false, true, true, true}));
  EXPECT_EQ(watch.last(0), std::vector<bool>{});
  EXPECT_EQ(asked, 2u) << "nothing new to ask about";
  watch.sampled();
  EXPECT_EQ(watch.last(1), std::vector<bool>{true});
  EXPECT_EQ(watch.reasons(), (Reasons{"power_cap", "thermal"}));
}

TEST(Throttle, AsksAfterEverySampleThatIsLongerThanTheInterval) {
  int asked = 0;
  ThrottleWatch watch([&] { return ++asked == 2 ? Reasons{"quota"} : Reasons{}; }, 1e-4);
  for (int i = 0; i < 3; ++i) {
    for (Timer sample; sample.seconds() < 2e-4;) {
    }
    watch.sampled();
  }
  EXPECT_EQ(watch.last(3), (std::vector<bool>{false, true, false}));
  EXPECT_EQ(asked, 3);
}

TEST(Throttle, CountersOfTheCpu) {
  CpuCounters before, after;
  after.seconds = 1;
  EXPECT_EQ(cpu_throttles(before, after, 2), Reasons{});
  after.steal = 0.03;  // 1.5% of two CPUs
  EXPECT_EQ(cpu_throttles(before, after, 2), Reasons{});
  after.steal = 0.05;
  EXPECT_EQ(cpu_throttles(before, after, 2), Reasons{"steal"});
  after.quota_throttles = 1, after.thermal_throttles = 1;
  EXPECT_EQ(cpu_throttles(before, after, 2), (Reasons{"quota", "steal", "thermal"}));
}

TEST(Throttle, PollingThisMachineIsCheap) {
  ThrottlePoll poll = throttle_poll(find_device("cpu", 1));
  poll();
  std::clock_t start = std::clock();  // processor time: other work here does not count
  for (int i = 0; i < 10; ++i) poll();
  double ms = 1e3 * double(std::clock() - start) / CLOCKS_PER_SEC / 10;
  EXPECT_LT(ms, 10) << "every 20 ms it is asked";
}

TEST(CacheFlush, WritesMoreThanTheCache) {
  Device device = find_device("cpu", 2);
  auto runtime = make_runtime(device, nullptr);
  CacheFlush flush(device, *runtime);
  EXPECT_GE(flush.bytes(), 4 * last_level_cache_bytes());
  EXPECT_GE(flush.bytes(), 1 << 20);
  flush();
  flush();
}

}  // namespace
}  // namespace crest
