#include "train/schedule.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/error.h"
#include "train/run_schedule.h"

using namespace crest;

namespace {
Schedule make(ScheduleKind kind) { return {kind, 1e-3, 1e-4, 10, 110, 0.2}; }
std::string error_of(const Schedule& s) {
  try {
    validate(s);
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Exit::usage);
    return e.where();
  }
  return "";
}
}  // namespace

TEST(Schedule, WarmupIsLinearAndNeverZero) {
  for (auto kind : {ScheduleKind::cosine, ScheduleKind::wsd, ScheduleKind::linear, ScheduleKind::constant}) {
    Schedule s = make(kind);
    EXPECT_DOUBLE_EQ(learning_rate(s, 0), 1e-3 / 11);
    EXPECT_DOUBLE_EQ(learning_rate(s, 9), 1e-3 * 10 / 11);
    EXPECT_DOUBLE_EQ(learning_rate(s, 10), 1e-3) << name(kind);
    s.warmup_steps = 0;
    EXPECT_DOUBLE_EQ(learning_rate(s, 0), 1e-3) << name(kind);
  }
}

TEST(Schedule, EndPoints) {
  for (auto kind : {ScheduleKind::cosine, ScheduleKind::wsd, ScheduleKind::linear}) {
    EXPECT_DOUBLE_EQ(learning_rate(make(kind), 110), 1e-4) << name(kind);
    EXPECT_DOUBLE_EQ(learning_rate(make(kind), 1000), 1e-4) << name(kind);
    EXPECT_GT(learning_rate(make(kind), 109), 1e-4) << name(kind);
  }
  EXPECT_DOUBLE_EQ(learning_rate(make(ScheduleKind::constant), 1000), 1e-3);
}

TEST(Schedule, ValuesByHand) {
  EXPECT_DOUBLE_EQ(learning_rate(make(ScheduleKind::cosine), 60), 5.5e-4);  // half way
  EXPECT_NEAR(learning_rate(make(ScheduleKind::cosine), 35), 1e-4 + 9e-4 * (1 + std::sqrt(0.5)) / 2, 1e-15);
  EXPECT_DOUBLE_EQ(learning_rate(make(ScheduleKind::linear), 35), 1e-4 + 9e-4 * 0.75);
  EXPECT_DOUBLE_EQ(learning_rate(make(ScheduleKind::wsd), 88), 1e-3) << "decay takes the last 22 of 110 steps";
  EXPECT_NEAR(learning_rate(make(ScheduleKind::wsd), 99), 1e-4 + 9e-4 * (1 - std::sqrt(0.5)), 1e-15);
}

TEST(Schedule, WsdHasAShareAndAShape) {
  Schedule s = make(ScheduleKind::wsd);
  s.decay_share = 0.4;  // 44 of 110 steps
  EXPECT_DOUBLE_EQ(learning_rate(s, 66), 1e-3);
  EXPECT_NEAR(learning_rate(s, 77), 1e-4 + 9e-4 * 0.5, 1e-15) << "a quarter of the decay: 1 - sqrt(1/4)";
  s.decay_shape = DecayShape::linear;
  EXPECT_NEAR(learning_rate(s, 77), 1e-4 + 9e-4 * 0.75, 1e-15);
  s.decay_shape = DecayShape::cosine;
  EXPECT_NEAR(learning_rate(s, 77), 1e-4 + 9e-4 * (1 + std::sqrt(0.5)) / 2, 1e-15);
  for (const char* shape : {"sqrt", "linear", "cosine"}) {
    s.decay_shape = parse_decay_shape(shape);
    EXPECT_DOUBLE_EQ(learning_rate(s, 65), 1e-3) << shape;
    EXPECT_NEAR(learning_rate(s, 109), 1e-4, 2.2e-5) << shape;
    EXPECT_DOUBLE_EQ(learning_rate(s, 110), 1e-4) << shape;
  }
  EXPECT_EQ(error_of(s), "");
  s.kind = ScheduleKind::linear;
  EXPECT_EQ(error_of(s), "--decay-share");
  s.decay_share = 0.2;
  EXPECT_EQ(error_of(s), "--decay-shape");
  s.decay_shape = DecayShape::sqrt;
  EXPECT_EQ(error_of(s), "");
}

TEST(Schedule, RisesThenNeverRisesAgain) {
  for (auto kind : {ScheduleKind::cosine, ScheduleKind::wsd, ScheduleKind::linear, ScheduleKind::constant})
    for (int64_t warmup : {0, 1, 10, 109, 110})
      for (double fraction : {0.0, 0.2, 1.0}) {
        Schedule s = make(kind);
        s.warmup_steps = warmup;
        if (kind == ScheduleKind::wsd) s.decay_share = fraction;
        validate(s);
        for (int64_t i = 1; i < 130; ++i) {
          double before = learning_rate(s, i - 1), now = learning_rate(s, i);
          ASSERT_TRUE(std::isfinite(now)) << name(kind) << " " << warmup << " " << i;
          if (i < warmup) {
            EXPECT_GT(now, before) << name(kind) << " " << i;
          }
          if (i > warmup) {
            EXPECT_LE(now, before) << name(kind) << " " << i;
          }
          EXPECT_LE(now, s.lr);
        }
      }
}

TEST(Schedule, RefusesWhatMakesNoSense) {
  Schedule s = make(ScheduleKind::cosine);
  s.lr = NAN;
  EXPECT_EQ(error_of(s), "--lr");
  s = make(ScheduleKind::cosine), s.min_lr = 1;
  EXPECT_EQ(error_of(s), "--min-lr");
  s.kind = ScheduleKind::constant;
  EXPECT_EQ(error_of(s), "") << "constant has no minimum";
  s = make(ScheduleKind::linear), s.warmup_steps = 111;
  EXPECT_EQ(error_of(s), "--warmup");
  s = make(ScheduleKind::linear), s.total_steps = 0;
  EXPECT_EQ(error_of(s), "--steps");
  s = make(ScheduleKind::wsd), s.decay_share = 2;
  EXPECT_EQ(error_of(s), "--decay-share");
}

// As the settings page states for `--warmup`: 2% of the steps, from 40 to 2000; a fifth below 200
// steps.
TEST(RunSchedule, DefaultWarmup) {
  auto warmup = [](int64_t steps, int64_t given = -1) {
    TrainOptions o;
    o.steps = steps;
    o.warmup = given;
    return RunSchedule(o, {}, 0, 0).schedule().warmup_steps;
  };
  const std::pair<int64_t, int64_t> expected[] = {
      {1, 0},    {2, 1},    {4, 1},     {10, 2},    {19, 3},     {20, 4},         {49, 9},          {60, 12},
      {199, 39}, {200, 40}, {2000, 40}, {2500, 50}, {5000, 100}, {100'000, 2000}, {1'000'000, 2000}};
  for (auto [steps, least] : expected) EXPECT_EQ(warmup(steps), least) << steps << " steps";
  EXPECT_EQ(warmup(40, 0), 0);
  EXPECT_EQ(warmup(40, 7), 7);
}

TEST(Schedule, Names) {
  for (auto& n : schedule_names()) EXPECT_EQ(name(parse_schedule(n)), n);
  try {
    parse_schedule("cosin");
    FAIL() << "must throw";
  } catch (const Error& e) {
    EXPECT_NE(e.advice().find("'cosine'"), std::string::npos);
  }
}
