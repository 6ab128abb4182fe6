// The work of each rank, from handmade times.
#include "profile/rank_times.h"

#include <gtest/gtest.h>

namespace crest::test {

namespace {

double sum(const ProfileRank& r) { return r.explained_ms(); }

// Computing from 0 to `arrival`, then a collective to 10 s; hidden: alongside it something computes
// until then.
RankStep step(double clock, double arrival, double hidden_until = 0) {
  RankStep s;
  s.seconds = 10;
  s.collectives = {{clock + arrival, clock + 10}};
  s.other = {{clock, clock + arrival}};
  if (hidden_until > 0) s.other.push_back({clock + arrival, clock + hidden_until});
  s.hiding = s.other = merged(s.other);
  s.work = merged({{clock, clock + 10}});
  return s;
}

}  // namespace

TEST(RankTimes, ARankWaitsForTheLastOne) {
  RankStep a = step(0, 4), b = step(0, 7);
  RankCollectives all = {a.collectives, b.collectives};
  ProfileRank first = rank_times(a, all, {0, 0}, 0), second = rank_times(b, all, {0, 0}, 1);
  EXPECT_NEAR(first.compute_ms, 4000, 1e-6);
  EXPECT_NEAR(first.waiting_ms[1], 3000, 1e-6);
  EXPECT_NEAR(first.waiting_ms[0], 0, 1e-6);
  EXPECT_NEAR(first.exposed_ms, 3000, 1e-6);
  EXPECT_NEAR(second.compute_ms, 7000, 1e-6);
  EXPECT_NEAR(second.waiting_sum_ms(), 0, 1e-6);
  EXPECT_NEAR(second.exposed_ms, 3000, 1e-6);
  for (auto& r : {first, second}) EXPECT_NEAR(sum(r), 10000, 1e-6);
}

// Clocks of other machines start anywhere. Collectives end together, so the offset makes their ends
// equal.
TEST(RankTimes, ClocksAreAlignedByTheEndsOfCollectives) {
  RankStep a = step(0, 4), b = step(1234.5, 7);
  RankCollectives all = {a.collectives, b.collectives};
  std::vector<double> offsets = clock_offsets({all, all});
  EXPECT_NEAR(offsets[0], 0, 1e-9);
  EXPECT_NEAR(offsets[1], -1234.5, 1e-9);
  EXPECT_NEAR(rank_times(a, all, offsets, 0).waiting_ms[1], 3000, 1e-6);
  EXPECT_NEAR(rank_times(b, all, offsets, 1).waiting_sum_ms(), 0, 1e-6);
}

// Time alongside computation is hidden, both waiting and transfer.
TEST(RankTimes, HiddenTimeIsNoLoss) {
  RankStep a = step(0, 4, 8), b = step(0, 7);
  ProfileRank r = rank_times(a, {a.collectives, b.collectives}, {0, 0}, 0);
  EXPECT_NEAR(r.hidden_ms, 4000, 1e-6);
  EXPECT_NEAR(r.waiting_sum_ms(), 0, 1e-6);
  EXPECT_NEAR(r.exposed_ms, 2000, 1e-6);
  EXPECT_NEAR(r.compute_ms, 8000, 1e-6);
  EXPECT_NEAR(sum(r), 10000, 1e-6);
}

// Two collectives at the same time on two streams, and a pause: each moment counts once.
TEST(RankTimes, MomentsCountOnce) {
  RankStep s;
  s.seconds = 12;
  s.collectives = {{2, 6}, {4, 8}, {}};  // the third did nothing
  s.other = s.hiding = {{0, 2}, {9, 10}};
  s.work = merged({{0, 2}, {2, 6}, {4, 8}, {9, 10}});
  ProfileRank r = rank_times(s, {s.collectives}, {0}, 0);
  EXPECT_NEAR(r.exposed_ms, 6000, 1e-6);
  EXPECT_NEAR(r.compute_ms, 3000, 1e-6);
  EXPECT_NEAR(r.idle_ms, 1000, 1e-6);
  EXPECT_NEAR(r.host_ms, 2000, 1e-6);
  EXPECT_NEAR(sum(r), 12000, 1e-6);
}

}  // namespace crest::test
