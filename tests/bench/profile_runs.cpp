// From traces to rows, kernels, intervals and idle time: traces made by hand.
#include <gtest/gtest.h>

#include "bench/profiler.h"
#include "core/error.h"
#include "profile/profile_summary.h"

namespace crest::test {

namespace {

// Two calls of a Program of two instructions, then one of an update.
Profile rows() {
  Profile p;
  p.calls = {"train", "train", "update"};
  for (int i = 0; i < 3; ++i) {
    ProfileInstr r;
    r.program = i < 2 ? "train" : "update", r.index = i % 2, r.stream = i == 1 ? "comm" : "compute";
    r.phase = i < 2 ? "forward" : "update";
    p.instrs.push_back(r);
  }
  return p;
}

StepTrace timed(double start, std::vector<double> seconds) {
  StepTrace t;
  t.start = start;
  for (double s : seconds) {
    t.starts.push_back(start);
    t.seconds.push_back(s);
    start += s;
  }
  t.total = start - t.start;
  return t;
}

// A run of instructions of `ms` each, with a pause of a millisecond before the update.
ProfiledRun run(double wall, double ms) {
  double s = ms * 1e-3;
  return {wall, {timed(100, {s, 2 * s}), timed(100 + 3 * s, {s, 2 * s}), timed(100 + 6 * s + 1e-3, {s})}};
}

}  // namespace

TEST(ProfileRuns, RowsAreSumsOverCallsOfTheMiddleRuns) {
  Profile p = rows();
  summarize_runs(p, {run(0.020, 1), run(0.5, 40), run(0.021, 2)});
  EXPECT_NEAR(p.instrs[0].ms, 4, 1e-9) << "2 ms in each of two calls, in the middle run";
  EXPECT_NEAR(p.instrs[1].ms, 8, 1e-9);
  EXPECT_NEAR(p.instrs[2].ms, 2, 1e-9);
  EXPECT_EQ(p.profiled_ms, (std::vector<double>{20, 500, 21}));
  EXPECT_TRUE(p.kernels.empty());
}

// On an occasionally busy machine, rows must still add up to a step.
TEST(ProfileRuns, RowsOfTheMiddleHalfAddUp) {
  Profile p = rows();
  // Six runs; by time the second and the fifth set the ends of the middle half; the slow
  // instruction differs.
  auto busy = [](double wall, double first, double second) {
    return ProfiledRun{wall, {timed(0, {first, second}), timed(1, {first, second}), timed(2, {0.001})}};
  };
  summarize_runs(p, {busy(0.9, 1, 1), busy(0.0070, 0.001, 0.002), busy(0.0080, 0.002, 0.0015), busy(0.0001, 0, 0),
                     busy(0.0090, 0.001, 0.003), busy(0.0100, 0.0035, 0.001)});
  EXPECT_NEAR(p.instrs[0].ms, 2 * (1 + 2 + 1 + 3.5) / 4, 1e-9);
  EXPECT_NEAR(p.instrs[0].ms + p.instrs[1].ms + p.instrs[2].ms, (7 + 8 + 9 + 10) / 4.0, 1e-9);
}

TEST(ProfileRuns, TheRunNearestToTheMedianIsKeptWhole) {
  Profile p = rows();
  summarize_runs(p, {run(0.020, 1), run(0.5, 40), run(0.021, 2)});
  EXPECT_DOUBLE_EQ(p.kept_ms, 21);
  ASSERT_EQ(p.intervals.size(), 5u);
  EXPECT_EQ(p.launches, 5);
  EXPECT_DOUBLE_EQ(p.intervals[0].start_ms, 0);
  EXPECT_NEAR(p.intervals[4].start_ms, 13, 1e-6);
  EXPECT_EQ(p.intervals[4].instr, 2);
  EXPECT_EQ(p.intervals[4].call, 2);
  EXPECT_EQ(p.intervals[3].instr, 1);
  EXPECT_EQ(p.intervals[3].stream, 1) << "the communication stream";
  EXPECT_NEAR(p.span_ms, 15, 1e-6);
  EXPECT_NEAR(p.busy_ms, 14, 1e-6);
  EXPECT_NEAR(p.idle_ms, 1, 1e-6);
  ProfileSummary f = summary_of(p);
  EXPECT_EQ(f.idle_periods, 1);
  EXPECT_NEAR(f.longest_idle_ms, 1, 1e-6);
}

// As a GPU reports: several kernels an instruction, two streams at once, copies without an
// instruction.
TEST(ProfileRuns, WorkOfADeviceIsSplitByKernel) {
  Profile p = rows();
  auto trace = [](double start, double scale) {
    StepTrace t;
    t.seconds = {0, 0}, t.starts = {0, 0};
    double u = 1e-3 * scale;
    t.work = {{"[memcpy]", -1, 7, start, u},
              {"gemm", 0, 7, start + 2 * u, 4 * u},
              {"split", 0, 7, start + 6 * u, 1 * u},
              {"nccl", 1, 13, start + 3 * u, 5 * u}};
    t.seconds = {5 * u, 5 * u};
    return t;
  };
  StepTrace update;
  update.seconds = {2e-3}, update.starts = {50.020};
  update.work = {{"adam", 0, 7, 50.020, 2e-3}};
  summarize_runs(p, {{0.03, {trace(50, 1), trace(50.010, 1), update}}});
  ASSERT_EQ(p.kernels.size(), 5u);
  auto find = [&](const std::string& name) {
    for (size_t k = 0; k < p.kernels.size(); ++k)
      if (p.kernels[k].name == name) return p.kernels[k];
    ADD_FAILURE() << name;
    return ProfileKernel();
  };
  EXPECT_EQ(find("gemm").instr, 0);
  EXPECT_EQ(find("gemm").count, 2);
  EXPECT_NEAR(find("gemm").ms, 8, 1e-9);
  EXPECT_NEAR(find("gemm").max_ms, 4, 1e-9);
  EXPECT_EQ(find("[memcpy]").instr, -1);
  EXPECT_EQ(find("nccl").instr, 1);
  EXPECT_EQ(find("adam").instr, 2);
  EXPECT_NEAR(p.instrs[0].ms, 10, 1e-9);
  // Each call: copy [0,1), nothing [1,2), two streams together [2,8), nothing [8,10); then the
  // update [20,22).
  EXPECT_NEAR(p.span_ms, 22, 1e-6);
  EXPECT_NEAR(p.busy_ms, 16, 1e-6);
  EXPECT_NEAR(p.idle_ms, 6, 1e-6);
  EXPECT_EQ(p.recording_ms, 0) << "no step to compare with";
  EXPECT_EQ(p.launches, 9);
  for (size_t i = 1; i < p.intervals.size(); ++i) EXPECT_LE(p.intervals[i - 1].start_ms, p.intervals[i].start_ms);
  for (auto& i : p.intervals) EXPECT_EQ(p.kernels[size_t(i.kernel)].instr, i.instr);
  EXPECT_NEAR(summary_of(p).longest_idle_ms, 2, 1e-6);
}

TEST(ProfileRuns, ARunOfOtherCallsIsRefused) {
  Profile p = rows();
  ProfiledRun wrong = run(0.02, 1);
  wrong.traces.pop_back();
  EXPECT_THROW(summarize_runs(p, {wrong}), Error);
  EXPECT_THROW(summarize_runs(p, {}), Error);
}

// CUPTI makes the gaps longer, not the kernels: the time an unprofiled step is shorter by was no
// idle time.
TEST(ProfileRuns, WhatRecordingAddsIsNoIdleTime) {
  auto profile = [](double step_ms, const char* method) {
    Profile p = rows();
    p.method = method, p.step_ms = {step_ms, step_ms};
    summarize_runs(p, {run(0.021, 2)});  // 14 ms of work, a gap of 1 ms
    return p;
  };
  Profile p = profile(14.4, "cupti");
  EXPECT_NEAR(p.recording_ms, 0.6, 1e-6);
  EXPECT_NEAR(p.idle_ms, 0.4, 1e-6);
  EXPECT_NEAR(p.explained_fraction(), 1, 1e-6);
  EXPECT_NEAR(profile(13, "cupti").recording_ms, 1, 1e-6) << "no more than the gaps";
  EXPECT_NEAR(profile(13, "cupti").explained_fraction(), 14 / 13.0, 1e-6) << "kernels that became longer do not close";
  EXPECT_EQ(profile(16, "cupti").recording_ms, 0);
  EXPECT_NEAR(profile(14.4, "timers").idle_ms, 1, 1e-6);
}

}  // namespace crest::test
