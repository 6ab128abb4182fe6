// Schedules of pipelines end, whatever their stages take, and have the bubbles of the literature.
#include "plan/schedule.h"

#include <gtest/gtest.h>

#include <random>

#include "core/error.h"

using namespace crest;

namespace {

using Kind = Pipeline::Kind;

Pipeline pipeline(Kind kind, int ranks, int chunks, int64_t micro_steps) { return {kind, ranks, chunks, micro_steps}; }

struct Random {
  std::mt19937 bits{7};
  int64_t whole(int64_t low, int64_t high) { return low + int64_t(bits() % uint64_t(high - low + 1)); }
  double time() { return double(whole(1, 300)) / 100; }

  Pipeline shape() {
    const auto kind = Kind(whole(0, 2));
    const int ranks = int(whole(2, 6));
    if (kind == Kind::interleaved) return pipeline(kind, ranks, int(whole(2, 3)), ranks * whole(1, 3));
    return pipeline(kind, ranks, 1, whole(1, 12));
  }
  PartTimes times(const Pipeline& p) {
    PartTimes t;
    for (int s = 0; s < p.stages(); ++s) {
      t.forward.push_back(time()), t.backward.push_back(time());
      if (p.splits_weights()) t.weights.push_back(time());
    }
    t.transfer = whole(0, 1) ? 0 : time() / 5;
    return t;
  }
};

}  // namespace

TEST(Schedule, ThousandsOfRandomOnesEnd) {
  Random random;
  for (int i = 0; i < 2000; ++i) {
    const Pipeline p = random.shape();
    SCOPED_TRACE(std::to_string(int(p.kind)) + ", ranks " + std::to_string(p.ranks) + ", chunks " +
                 std::to_string(p.chunks) + ", micro steps " + std::to_string(p.micro_steps));
    ASSERT_NO_THROW(verify_schedule(make_schedule(p, random.times(p))));
  }
}

// Whatever is left out, run twice or exchanged with what comes after it in another order.
TEST(Schedule, ChangesAreFound) {
  Random random;
  int found = 0;
  for (int i = 0; i < 300; ++i) {
    const Pipeline p = random.shape();
    PipelineSchedule s = make_schedule(p, random.times(p));
    auto& calls = s.calls[size_t(random.whole(0, p.ranks - 1))];
    const auto at = size_t(random.whole(0, int64_t(calls.size()) - 1));
    const int64_t how = random.whole(0, 2);
    if (how == 0) calls.erase(calls.begin() + std::ptrdiff_t(at));
    if (how == 1) calls.insert(calls.begin() + std::ptrdiff_t(at), calls[at]);
    if (how == 2) calls[at].slot += 1;
    try {
      verify_schedule(s);
      ADD_FAILURE() << "change " << how << " of " << i;
    } catch (const Error&) {
      ++found;
    }
  }
  EXPECT_EQ(found, 300);
}

// If each rank sends when it has something, two ranks wait for each other from two micro steps on.
TEST(Schedule, SendsInEachRanksOwnOrderWaitForEachOther) {
  PipelineSchedule s =
      make_schedule(pipeline(Kind::one_f_one_b, 2, 1, 2), equal_times(pipeline(Kind::one_f_one_b, 2, 1, 2)));
  auto& calls = s.calls[1];
  using Action = PipelineCall::Action;
  // The gradient of micro step 0 is sent before the input of micro step 1 is received.
  auto gradient = std::find_if(calls.begin(), calls.end(), [](auto& c) { return c.action == Action::send; });
  auto input = std::find_if(calls.begin(), calls.end(),
                            [](auto& c) { return c.action == Action::receive && c.micro_step == 1; });
  ASSERT_NE(gradient, calls.end());
  ASSERT_NE(input, calls.end());
  std::iter_swap(gradient, input);
  EXPECT_THROW(verify_schedule(s), Error);
}

TEST(Schedule, BubblesAreThoseOfTheLiterature) {
  for (int p : {2, 4, 8})
    for (int64_t m : {8, 32}) {
      const auto ranks = double(p), micro = double(m);
      auto fraction = [&](Kind kind, int chunks) {
        const Pipeline of = pipeline(kind, p, chunks, m);
        return bubble_of(of, equal_times(of)).fraction();
      };
      EXPECT_NEAR(fraction(Kind::one_f_one_b, 1), (ranks - 1) / micro, 1e-12);
      EXPECT_NEAR(fraction(Kind::interleaved, 2), (ranks - 1) / (2 * micro), 1e-12);
      EXPECT_NEAR(fraction(Kind::zero_bubble, 1), (ranks - 1) / (3 * micro), 1e-12);
    }
}

TEST(Schedule, ATransferKeepsBothRanksBusy) {
  const Pipeline p = pipeline(Kind::one_f_one_b, 2, 1, 32);
  const Bubble b = bubble_of(p, equal_times(p, 0.05));
  // Each rank passes on 64 tensors, and waits for one forward and one backward pass.
  EXPECT_NEAR(b.seconds(), 1 + 2 + 64 * 0.05, 1e-9);
  EXPECT_NEAR(b.fraction(), 0.064, 0.001);
  EXPECT_NEAR(b.warm_up, 1, 1e-12);
  EXPECT_NEAR(b.drain, 2, 1e-12);
  EXPECT_NEAR(b.imbalance, 0, 1e-12);
}

TEST(Schedule, ASlowStageIsImbalance) {
  const Pipeline p = pipeline(Kind::one_f_one_b, 2, 1, 8);
  PartTimes times = equal_times(p);
  times.forward[1] = 1.5, times.backward[1] = 3;
  const Bubble b = bubble_of(p, times);
  EXPECT_NEAR(b.imbalance, 8 * 1.5 / 2 - 0.75, 1e-9);  // equal stages would wait 3.75, these wait 3
  EXPECT_NEAR(b.warm_up + b.drain, 3.75, 1e-9);
  EXPECT_NEAR(b.ideal + b.seconds(), make_schedule(p, times).seconds, 1e-9);
}

// Measured times of a schedule that other times have ordered.
TEST(Schedule, KeepsItsOrderWithOtherTimes) {
  Random random;
  for (int i = 0; i < 200; ++i) {
    const Pipeline p = random.shape();
    const PartTimes first = random.times(p), second = random.times(p);
    const PipelineSchedule s = make_schedule(p, first);
    EXPECT_NEAR(with_times(s, first).seconds, s.seconds, 1e-9);
    const PipelineSchedule other = with_times(s, second);
    ASSERT_NO_THROW(verify_schedule(other));
    const Bubble b = bubble_of(s, second);
    EXPECT_NEAR(b.ideal + b.seconds(), other.seconds, 1e-9 * other.seconds);
    for (size_t r = 0; r < s.calls.size(); ++r)
      for (size_t c = 0; c < s.calls[r].size(); ++c) {
        EXPECT_EQ(other.calls[r][c].micro_step, s.calls[r][c].micro_step);
        if (c == 0) continue;
        EXPECT_GE(other.calls[r][c].start, other.calls[r][c - 1].start + other.calls[r][c - 1].seconds - 1e-9);
      }
  }
}

// Micro steps in flight: fewer towards the last rank.
TEST(Schedule, SlotsAreThoseOfOneForwardOneBackward) {
  const Pipeline p = pipeline(Kind::one_f_one_b, 4, 1, 9);
  const PipelineSchedule s = make_schedule(p, equal_times(p));
  for (int r = 0; r < 4; ++r) EXPECT_EQ(s.slots[size_t(r)], std::vector<int>{4 - r});
}
