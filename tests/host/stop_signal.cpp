#include "host/stop_signal.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include "core/error.h"
#include "core/timer.h"

using namespace crest;

TEST(StopSignal, FirstSetsTheFlag) {
  EXPECT_FALSE(StopSignal::requested());
  {
    StopSignal guard;
    EXPECT_FALSE(StopSignal::requested());
    raise(SIGTERM);
    EXPECT_TRUE(StopSignal::requested());
    EXPECT_EQ(StopSignal::signal_number(), SIGTERM);
  }
  EXPECT_FALSE(StopSignal::requested());
  StopSignal again;
  EXPECT_FALSE(StopSignal::requested()) << "a new guard starts afresh";
  raise(SIGINT);
  EXPECT_EQ(StopSignal::signal_number(), SIGINT);
}

TEST(StopSignal, DoubledDeliveryIsOneRequest) {
  StopSignal guard;
  // Both signals are pending before either is delivered. On a loaded machine, two separate signals
  // could be further apart than a repetition.
  sigset_t both;
  sigemptyset(&both);
  sigaddset(&both, SIGTERM), sigaddset(&both, SIGINT);
  sigprocmask(SIG_BLOCK, &both, nullptr);
  raise(SIGTERM);
  raise(SIGINT);
  EXPECT_FALSE(StopSignal::requested());
  sigprocmask(SIG_UNBLOCK, &both, nullptr);
  EXPECT_TRUE(StopSignal::requested());
}

TEST(StopSignalDeathTest, SecondEndsAtOnce) {
  auto twice = [](int first, int second) {
    StopSignal guard;
    raise(first);
    for (Timer timer; timer.seconds() <= StopSignal::repetition_seconds;) {
    }
    raise(second);
  };
  EXPECT_EXIT(twice(SIGINT, SIGINT), testing::ExitedWithCode(130), "without saving");
  EXPECT_EXIT(twice(SIGTERM, SIGINT), testing::ExitedWithCode(130), "without saving");
}

// A step of a measurement can take minutes and cannot stop halfway.
TEST(StopSignalDeathTest, EndsWithinTheGraceOfAMeasurement) {
  auto stuck = [] {
    StopSignal guard(0.02);
    raise(SIGTERM);
    for (Timer timer; timer.seconds() < 60;) {
    }
  };
  EXPECT_EXIT(stuck(), testing::ExitedWithCode(130), "ended within a step");
  auto in_time = [] {
    StopSignal guard(0.02);
    raise(SIGTERM);
    if (StopSignal::requested())  // so the command ends by itself, and saves
      for (Timer timer; timer.seconds() < 0.1;) {
      }
    _exit(7);
  };
  EXPECT_EXIT(in_time(), testing::ExitedWithCode(7), "");
}

TEST(StopSignalDeathTest, RestoresHandlers) {
  auto later = [] {
    { StopSignal guard; }
    raise(SIGTERM);
  };
  EXPECT_EXIT(later(), testing::KilledBySignal(SIGTERM), "");
}

TEST(StopSignal, OneGuardAtATime) {
  StopSignal guard;
  EXPECT_THROW(StopSignal(), Error);
  raise(SIGINT);
  EXPECT_TRUE(StopSignal::requested()) << "the refused guard must not disturb the first";
}
