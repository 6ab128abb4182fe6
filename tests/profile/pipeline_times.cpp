// The split of a pipeline's step, from handmade times.
#include "train/pipeline_times.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "profile/pipeline_text.h"

namespace crest::test {

namespace {

using Kind = Pipeline::Kind;

// A step with exactly the times of a schedule, 1 s before it and 2 s after it, on clocks that start
// anywhere. merged: the last stage runs both passes as one call, as Programs do.
struct Handmade {
  PipelineSchedule schedule;
  std::vector<std::vector<CallRole>> roles;
  std::vector<std::vector<RankCalls>> runs;
};
Handmade handmade(const Pipeline& p, const PartTimes& times, bool merged = false) {
  Handmade h;
  h.schedule = make_schedule(p, times);
  const double end = h.schedule.seconds;
  for (int r = 0; r < p.ranks; ++r) {
    const double clock = 100.0 * r * r + 1;
    auto& roles = h.roles.emplace_back();
    auto& run = h.runs.emplace_back(1)[0];
    run.seconds = end + 3;
    double now = 0;
    auto add = [&](CallRole role, double until) {
      roles.push_back(role), run.stamps.push_back(clock + now), now = until;
    };
    auto& calls = h.schedule.calls[size_t(r)];
    for (size_t c = 0; c < calls.size(); ++c) {
      const bool last = calls[c].chunk * p.ranks + r == p.stages() - 1;
      if (merged && last && calls[c].action == PipelineCall::Action::run && calls[c].part == StagePart::forward)
        continue;
      add({int(c), false}, calls[c].start + calls[c].seconds);
    }
    add({-1, true}, end + 1);  // the loss goes to rank 0, which waits for it in its last pass
    add({-1, false}, end + 2);
    run.stamps.push_back(clock + end + 2);
  }
  return h;
}

PipelineTimes times_of(const Handmade& h) {
  return pipeline_times(h.schedule, {{Axis::pipeline, int(h.roles.size())}}, h.roles, h.runs);
}

void expect_sums(const PipelineTimes& t) {
  EXPECT_NEAR(t.predicted_ms() + t.other_ms + t.rest_ms, t.step_ms, 1e-6);
  for (const StageTimes& s : t.stages) {
    EXPECT_NEAR(s.compute_ms + s.transfer_ms + s.waiting_ms() + s.rest_ms, s.step_ms, 1e-6);
    EXPECT_GE(s.between_ms, -1e-6);
    EXPECT_GE(s.rest_ms, 0);
  }
}

}  // namespace

TEST(PipelineTimes, BubblesAreThoseOfTheLiterature) {
  struct Case {
    Kind kind;
    int chunks;
    double divided_by;
  };
  for (const Case& c : {Case{Kind::one_f_one_b, 1, 1}, Case{Kind::interleaved, 2, 2}, Case{Kind::zero_bubble, 1, 3}})
    for (int p : {2, 4})
      for (int64_t m : {8, 32}) {
        const Pipeline of = {c.kind, p, c.chunks, m};
        const PipelineTimes t = times_of(handmade(of, equal_times(of)));
        EXPECT_NEAR(t.measured_bubble(), (p - 1) / (c.divided_by * double(m)), 1e-9);
        EXPECT_NEAR(t.bubble.fraction(), t.measured_bubble(), 1e-9);
        EXPECT_NEAR(t.bubble.imbalance, 0, 1e-6);
        EXPECT_NEAR(t.rest_ms, 3e3, 1e-6);
        EXPECT_NEAR(t.other_ms, 0, 1e-6);
        EXPECT_EQ(t.transfer_ms, 0);
        expect_sums(t);
      }
}

TEST(PipelineTimes, TransfersAreTheirOwnPart) {
  const Pipeline p = {Kind::one_f_one_b, 2, 1, 32};
  const PipelineTimes t = times_of(handmade(p, equal_times(p, 0.05), true));
  EXPECT_NEAR(t.measured_bubble(), 0.064, 0.001);
  EXPECT_NEAR(t.bubble.transfers, 1e3 * 64 * 0.05, 1e-6);
  EXPECT_NEAR(t.transfer_ms, 50, 1e-6);
  EXPECT_NEAR(t.other_ms, 0, 1e-6);
  for (const StageTimes& s : t.stages) EXPECT_NEAR(s.transfer_ms, 1e3 * 64 * 0.05, 1e-6);
  EXPECT_NEAR(t.stages[1].warm_up_ms, 1e3, 1e-6);
  EXPECT_NEAR(t.stages[1].drain_ms, 2e3, 1e-6);
  EXPECT_NEAR(t.stages[0].between_ms, 3e3, 1e-6);
  ASSERT_EQ(t.stages[1].parts.size(), 1u);  // both passes
  EXPECT_NEAR(t.stages[1].parts[0].ms, 3e3, 1e-6);
  expect_sums(t);
}

TEST(PipelineTimes, ASlowStageIsImbalance) {
  const Pipeline p = {Kind::one_f_one_b, 3, 1, 8};
  PartTimes times = equal_times(p, 0.01);
  times.forward[1] = 1.5, times.backward[1] = 3;
  for (bool merged : {false, true}) {
    const PipelineTimes t = times_of(handmade(p, times, merged));
    EXPECT_NEAR(t.bubble.ideal, 1e3 * 8 * 3.5, 1e-6);
    EXPECT_NEAR(t.bubble.warm_up + t.bubble.drain, 1e3 * 2 * 3.5, 1e-6);
    PartTimes at_once = times;
    at_once.transfer = 0;
    EXPECT_NEAR(t.bubble.imbalance, 1e3 * (make_schedule(p, at_once).seconds - 10 * 3.5), 1e-6);
    EXPECT_GT(t.bubble.imbalance, 5e3);
    EXPECT_NEAR(t.other_ms, 0, 1e-6);
    expect_sums(t);
  }
}

// The simulation takes the mean of all micro steps: what one of them adds stays open.
TEST(PipelineTimes, WhatTheSimulationLeavesOpenIsStated) {
  const Pipeline p = {Kind::one_f_one_b, 2, 1, 4};
  Handmade h = handmade(p, equal_times(p));
  for (auto& rank : h.runs) {
    rank[0].seconds += 5;
    for (size_t i = 1; i < rank[0].stamps.size(); ++i) rank[0].stamps[i] += 5;  // the first call of each rank
  }
  const PipelineTimes t = times_of(h);
  EXPECT_NEAR(t.bubble.ideal, 1e3 * (4 * 3 + 5.0 / 2), 1e-6);
  EXPECT_GT(std::abs(t.other_ms), 1);
  expect_sums(t);
  const std::string text = pipeline_text(to_json(t), 100, false);
  EXPECT_NE(text.find("other"), std::string::npos) << text;
  EXPECT_NE(text.find("simulated"), std::string::npos) << text;
}

}  // namespace crest::test
