#include "device/memory_peak.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "device/find.h"

using namespace crest;

namespace {
constexpr int64_t mib = int64_t(1) << 20;
}

// Memory that was used and freed shows in the peak, and not at the end.
TEST(MemoryPeak, SeesWhatIsGivenBack) {
  MemoryPeak peak(find_device("cpu", 1));
  {
    auto large = std::make_unique<std::vector<char>>(size_t(96 * mib), char(1));
    ASSERT_EQ(large->back(), 1);
  }
  MemoryPeak::Bytes b = peak.stop();
  if (!b.missing.empty()) GTEST_SKIP() << b.missing;
  EXPECT_GE(b.peak, b.start + 90 * mib);
  EXPECT_GE(b.transient(), 90 * mib);
  EXPECT_LT(b.end, b.start + 50 * mib);
}

TEST(MemoryPeak, ReadsADeviceAgainAndAgain) {
  std::atomic<int> reads = 0;
  MemoryPeak peak([&]() -> std::optional<int64_t> {
    int n = ++reads;
    return n == 3 ? 500 : 100 + n;
  });
  while (reads < 6) std::this_thread::yield();
  MemoryPeak::Bytes b = peak.stop();
  EXPECT_EQ(b.missing, "");
  EXPECT_EQ(b.start, 101);
  EXPECT_EQ(b.peak, 500);
  EXPECT_EQ(b.end, 100 + reads);
  EXPECT_EQ(peak.stop().peak, 500);
}

TEST(MemoryPeak, AbsentWithAReason) {
  MemoryPeak peak([]() -> std::optional<int64_t> { return std::nullopt; });
  EXPECT_EQ(peak.stop().missing, "the driver does not report the memory in use");
}
