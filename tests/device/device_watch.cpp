// The state of the device during a training run.
#include "device/device_watch.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cmath>

#include "device/find.h"
#include "wait.h"

namespace crest::test {

TEST(DeviceWatch, KeepsTheLastState) {
  std::atomic<int> reads = 0;
  DeviceWatch watch(
      [&] {
        DeviceState state;
        state.watts = ++reads;
        return state;
      },
      0.001);
  ASSERT_TRUE(wait_until([&] { return watch.now().watts >= 3; }));
  EXPECT_TRUE(std::isnan(watch.now().clock_mhz)) << "not reported";
}

// A driver that fails ends no training run.
TEST(DeviceWatch, ForgetsAStateItCannotReadAnyMore) {
  std::atomic<int> reads = 0;
  DeviceWatch watch(
      [&]() -> DeviceState {
        if (++reads > 2) throw std::runtime_error("the driver is gone");
        DeviceState state;
        state.watts = 100;
        return state;
      },
      0.001);
  EXPECT_TRUE(wait_until([&] { return reads > 2 && std::isnan(watch.now().watts); }));
}

TEST(DeviceWatch, KnowsTheMemoryOfThisProcess) {
  DeviceWatch watch(find_device("cpu", 1), 0.001);
  ASSERT_TRUE(wait_until([&] { return watch.now().memory_bytes > 0; }));
  EXPECT_GT(watch.now().memory_bytes, 1e6);
}

}  // namespace crest::test
