// Waiting for work another rank can keep from ending.
#include "backend/cuda/watched_wait.h"

#include <gtest/gtest.h>

#include "comm/comm.h"

namespace crest::test {

TEST(WatchedWait, EndsWithTheWork) {
  int asked = 0;
  EXPECT_TRUE(cuda::watched_wait([&] { return ++asked == 1000; }, [] { FAIL() << "no time has passed"; }));
  EXPECT_EQ(asked, 1000);
}

// As GpuRuntime waits for a step, and Communicator::check() finds a lost rank.
TEST(WatchedWait, EndsWhenARankIsGone) {
  int looked = 0;
  auto gone = [&] {
    if (++looked == 3) throw PeerLost(1, "rank 1 is gone", "step 5");
  };
  EXPECT_THROW(cuda::watched_wait([] { return false; }, gone), PeerLost);
  EXPECT_EQ(looked, 3);
}

TEST(WatchedWait, EndsWithItsTime) {
  EXPECT_FALSE(cuda::watched_wait([] { return false; }, [] {}, 0.05));
}

}  // namespace crest::test
