// Hidden and exposed communication, from intervals.
#include "profile/overlap.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <cmath>

#include "profile/profile_summary.h"
#include "profile/profile_text.h"

namespace crest::test {

namespace {

ProfileInstr row(const char* stream, const char* op_class, double ms) {
  ProfileInstr r;
  r.program = "train", r.phase = "backward", r.stream = stream, r.op_class = op_class, r.ms = ms;
  return r;
}

ProfileInterval interval(int instr, int stream, double start, double ms) {
  return {.instr = instr, .kernel = -1, .call = 0, .stream = stream, .start_ms = start, .ms = ms};
}

}  // namespace

TEST(Overlap, SpansMergeAndMeet) {
  auto a = merged({{5, 6}, {0, 2}, {1, 3}, {4, 4}, {3, 3.5}});
  ASSERT_EQ(a.size(), 2u);
  EXPECT_DOUBLE_EQ(length_of(a), 4.5);
  EXPECT_DOUBLE_EQ(overlap_of(a, merged({{2, 5.25}, {5.5, 9}})), 1.5 + 0.25 + 0.5);
  EXPECT_DOUBLE_EQ(overlap_of(a, {}), 0);
  EXPECT_DOUBLE_EQ(overlap_of({}, a), 0);
}

// Of 0 to 4, 1 to 3 is computed (by two overlapping kernels). A copy of inputs hides nothing, nor
// does another collective.
TEST(Overlap, WhatAKernelOverlapsIsHidden) {
  Profile p;
  p.instrs = {row("compute", "contraction", 1), row("comm", "communication", 4), row("comm", "communication", 2),
              row("compute", "optimizer", 1)};
  p.intervals = {interval(1, 13, 0, 4),    interval(0, 7, 1, 1.5), interval(3, 7, 2, 1),
                 interval(-1, 9, 3, 0.75), interval(2, 14, 3, 2),  interval(0, 7, 4.5, 9)};
  auto list = communication_times(p);
  ASSERT_EQ(list.size(), 2u);
  EXPECT_EQ(list[0].instr, 1);
  EXPECT_DOUBLE_EQ(list[0].hidden_ms, 2);
  EXPECT_DOUBLE_EQ(list[0].exposed_ms, 2);
  EXPECT_EQ(list[1].instr, 2);
  EXPECT_DOUBLE_EQ(list[1].hidden_ms, 0.5);
  EXPECT_DOUBLE_EQ(list[1].exposed_ms, 1.5);
  ProfileSummary f = summary_of(p);
  EXPECT_DOUBLE_EQ(f.communication_ms, 6);
  EXPECT_DOUBLE_EQ(f.hidden_ms, 2.5);
  EXPECT_DOUBLE_EQ(f.exposed_ms, 3.5);
  EXPECT_EQ(to_json(f)["communication_hidden_ms"], 2.5);
  EXPECT_EQ(to_json(f)["communication_exposed_ms"], 3.5);
  std::string text = profile_summary(p, {});
  EXPECT_NE(text.find("communication      6.000 ms: 2.500 ms while other instructions run, 3.500 ms exposed"),
            std::string::npos)
      << text;
}

// A gradient on a stream of its own is hidden by the compute stream, not by communication.
TEST(Overlap, GradientsAreHiddenByTheComputeStream) {
  Profile p;
  p.instrs = {row("compute", "contraction", 3), row("gradients", "contraction", 4), row("comm", "communication", 2)};
  p.intervals = {interval(0, 7, 0, 3), interval(1, 8, 2, 4), interval(2, 9, 4, 2)};
  auto list = gradient_times(p);
  ASSERT_EQ(list.size(), 1u);
  EXPECT_DOUBLE_EQ(list[0].hidden_ms, 1);
  EXPECT_DOUBLE_EQ(list[0].exposed_ms, 3);
  EXPECT_DOUBLE_EQ(communication_times(p).at(0).hidden_ms, 2) << "gradients hide communication";
  EXPECT_EQ(to_json(summary_of(p))["gradient_stream_ms"], 4);
  EXPECT_EQ(to_json(summary_of(p))["gradient_stream_hidden_ms"], 1);
  std::string text = profile_summary(p, {});
  EXPECT_NE(text.find("gradient stream    4.000 ms: 1.000 ms while the compute stream runs, 3.000 ms alone"),
            std::string::npos)
      << text;
}

// The kept step is one of many: its shares divide the mean.
TEST(Overlap, SharesOfTheKeptStepDivideTheMean) {
  Profile p;
  p.instrs = {row("comm", "communication", 3), row("compute", "contraction", 1)};
  p.intervals = {interval(0, 1, 0, 4), interval(1, 0, 0, 1)};
  auto list = communication_times(p);
  ASSERT_EQ(list.size(), 1u);
  EXPECT_DOUBLE_EQ(list[0].hidden_ms, 0.75);
  EXPECT_DOUBLE_EQ(list[0].exposed_ms, 2.25);
  p.intervals.clear();  // nothing is known to hide it
  EXPECT_DOUBLE_EQ(communication_times(p).at(0).exposed_ms, 3);
}

// Against time cut into ticks: kernels on two streams, collectives one after another on theirs.
TEST(Overlap, RandomStepsAddUp) {
  double hidden_sum = 0, exposed_sum = 0;
  bool held = rc::check("hidden and exposed are what ticks say, and add up to the communication", [&] {
    constexpr int ticks = 200, collectives = 3;
    Profile p;
    for (int i = 0; i < collectives; ++i) p.instrs.push_back(row("comm", "communication", 0));
    p.instrs.push_back(row("compute", "contraction", 1));
    std::vector<bool> computes(ticks, false);
    std::vector<std::vector<bool>> sends(collectives, std::vector<bool>(ticks, false));
    for (int stream = 0; stream < 3; ++stream)
      for (int at = *rc::gen::inRange(0, 20); at < ticks;) {
        int n = std::min(*rc::gen::inRange(1, 30), ticks - at);
        int instr = stream == 2 ? *rc::gen::inRange(0, collectives) : collectives;
        p.intervals.push_back(interval(instr, stream, at, n));
        for (int t = at; t < at + n; ++t) (stream == 2 ? sends[size_t(instr)] : computes)[size_t(t)] = true;
        if (stream == 2) p.instrs[size_t(instr)].ms += n;
        at += n + *rc::gen::inRange(0, 40);
      }
    double all = 0, sum = 0;
    for (auto& c : communication_times(p)) {
      double hidden = 0, exposed = 0;
      for (size_t t = 0; t < ticks; ++t)
        if (sends[size_t(c.instr)][t]) (computes[t] ? hidden : exposed) += 1;
      RC_ASSERT(std::abs(c.hidden_ms - hidden) < 1e-9);
      RC_ASSERT(std::abs(c.exposed_ms - exposed) < 1e-9);
      sum += c.hidden_ms + c.exposed_ms, all += p.instrs[size_t(c.instr)].ms;
      hidden_sum += hidden, exposed_sum += exposed;
    }
    RC_ASSERT(std::abs(sum - all) < 1e-9);
  });
  EXPECT_TRUE(held);
  EXPECT_GT(hidden_sum, 1000);
  EXPECT_GT(exposed_sum, 1000);
}

}  // namespace crest::test
