#include "device/memory_peak.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstring>
#include <memory>
#include <vector>

#include "device/find.h"
#include "host/memory_parts.h"

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

// Memory from the system and back to it, whatever the allocator keeps.
class Pages {
 public:
  explicit Pages(int64_t bytes)
      : bytes_(size_t(bytes)),
        memory_(mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {
    if (memory_ != MAP_FAILED) std::memset(memory_, 1, bytes_);
  }
  ~Pages() { munmap(memory_, bytes_); }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;

 private:
  size_t bytes_;
  void* memory_;
};

// A part that keeps 64 MiB, one that gives them back, and one that needs 96 MiB in between.
TEST(MemoryParts, ShowWhatAPartTakesKeepsAndGivesBack) {
  MemoryParts parts("start");
  parts.begin("keeps");
  auto kept = std::make_unique<Pages>(64 * mib);
  parts.begin("gives back");
  kept.reset();
  parts.begin("needs for a time");
  { Pages large(96 * mib); }
  std::vector<MemoryPart> rows = parts.end();
  ASSERT_EQ(rows.size(), 4u);
  const MemoryPart &start = rows[0], &keeps = rows[1], &frees = rows[2], &transient = rows[3];
  EXPECT_EQ(start.part, "start");
  EXPECT_EQ(start.start, 0);
  ASSERT_TRUE(start.peak.has_value());
  EXPECT_GE(*start.peak, start.end);
  for (size_t i = 1; i < rows.size(); ++i) EXPECT_EQ(rows[i].start, rows[i - 1].end);
  constexpr double slack = double(8 * mib);
  EXPECT_NEAR(double(keeps.end - keeps.start), double(64 * mib), slack);
  EXPECT_NEAR(double(frees.start - frees.end), double(64 * mib), slack);
  EXPECT_NEAR(double(transient.end - transient.start), 0, slack);
  if (!transient.peak) GTEST_SKIP() << "the system does not reset the peak of the resident set";
  EXPECT_NEAR(double(*transient.peak - transient.start), double(96 * mib), slack);
  EXPECT_NEAR(double(*keeps.peak - keeps.end), 0, slack);
  EXPECT_NEAR(double(*frees.peak - frees.start), 0, slack);
}
