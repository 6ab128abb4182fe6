// The contribution of each change, from steps with some of the changes.
#include "compare/attribution.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <bit>
#include <cmath>
#include <numeric>

#include "compare/compared.h"
#include "compare/measure_changes.h"
#include "core/text.h"

using namespace crest;
using namespace crest::test;

namespace {

using Times = std::map<ChangeSet, SetTime>;

// All sets needed for `changes`, with unrelated times.
Times any_times(size_t changes) {
  Times times;
  auto add = [&](ChangeSet set) {
    times[set] = {double(*rc::gen::inRange(1, 1000)), double(*rc::gen::inRange(0, 20))};
  };
  add(0), add((ChangeSet(1) << changes) - 1);
  for (ChangeSet set : sets_to_measure(changes)) add(set);
  return times;
}

Times swapped(size_t changes, const Times& times) {
  Times other;
  for (auto& [set, time] : times) other[((ChangeSet(1) << changes) - 1) & ~set] = time;
  return other;
}

double sum(const ChangeTimes& c) {
  return std::accumulate(c.changes.begin(), c.changes.end(), c.unshared, [](double s, auto& x) { return s + x.share; });
}

size_t any_count() { return size_t(*rc::gen::inRange(2, 9)); }

// A record pair as crest compare --a --b leaves it: attention saves `attention` of A's step and
// recompute `recompute`, and both together 1% more.
std::pair<RunRecord, RunRecord> measured_pair(double attention, double recompute, std::vector<SetRatio> sets) {
  Synthetic a = gpt2(), b = gpt2();
  a.recipe.attention = "naive", a.recipe.recompute = "full";
  std::pair<RunRecord, RunRecord> pair = {make_record(a, "first"), make_record(b, "second")};
  Profile p = make_profile(b);
  const double step = make_profile(a).step_ms[0];
  for (double& ms : p.step_ms) ms = step * (1 - attention - recompute - 0.01);
  pair.second.documents["profile"] = to_json(p);
  MeasuredChanges m;
  m.other = pair.first.uid, m.changes = {{"attention", "naive", ""}, {"recompute", "full", ""}},
  m.sets = std::move(sets);
  pair.second.documents["changes"] = to_json(m);
  return pair;
}

const SettingEffect* effect(const RunComparison& c, const std::string& setting) {
  for (auto& e : c.settings)
    if (e.setting == setting) return &e;
  return nullptr;
}

}  // namespace

RC_GTEST_PROP(Attribution, SharesSumToTheDifference, ()) {
  size_t n = any_count();
  Times times = any_times(n);
  ChangeTimes c = attribute_changes(n, times);
  RC_ASSERT(c.method == (n <= most_shapley_changes ? AttributionMethod::shapley : AttributionMethod::first_and_last));
  RC_ASSERT(c.method == AttributionMethod::first_and_last || c.unshared == 0);
  RC_ASSERT(std::abs(sum(c) - (times.rbegin()->second.time - times.begin()->second.time)) < 1e-9);
}

RC_GTEST_PROP(Attribution, SwappedSidesChangeTheSigns, ()) {
  size_t n = any_count();
  Times times = any_times(n);
  ChangeTimes c = attribute_changes(n, times), back = attribute_changes(n, swapped(n, times));
  for (size_t i = 0; i < n; ++i) {
    RC_ASSERT(std::abs(c.changes[i].share + back.changes[i].share) < 1e-9);
    RC_ASSERT(std::abs(c.changes[i].error - back.changes[i].error) < 1e-9);
    RC_ASSERT(c.changes[i].alone == -back.changes[i].last);
  }
  RC_ASSERT(std::abs(c.unshared + back.unshared) < 1e-9);
  RC_ASSERT(std::abs(std::abs(c.strongest_interaction) - std::abs(back.strongest_interaction)) < 1e-9);
}

RC_GTEST_PROP(Attribution, ChangesThatDoNotInteractGetWhatTheyDoAlone, ()) {
  size_t n = any_count();
  std::vector<double> ms;
  for (size_t i = 0; i < n; ++i) ms.push_back(double(*rc::gen::inRange(-50, 50)));
  Times times = any_times(n);
  for (auto& [set, t] : times) {
    t.time = 1000;
    for (size_t i = 0; i < n; ++i) t.time += set >> i & 1 ? ms[i] : 0;
  }
  ChangeTimes c = attribute_changes(n, times);
  for (size_t i = 0; i < n; ++i) RC_ASSERT(std::abs(c.changes[i].share - ms[i]) < 1e-9);
  RC_ASSERT(std::abs(c.interaction) < 1e-9 && std::abs(c.unshared) < 1e-9);
}

TEST(Attribution, TooFewMeasurementsGiveNothing) {
  Times times = {{0, {10, 0}}, {7, {5, 0}}, {1, {9, 0}}, {2, {8, 0}}, {4, {7, 0}}};
  EXPECT_EQ(attribute_changes(3, times).method, AttributionMethod::work);
  for (ChangeSet set : {3u, 5u, 6u}) times[set] = {6, 0};
  EXPECT_EQ(attribute_changes(3, times).method, AttributionMethod::shapley);
  EXPECT_EQ(sets_to_measure(4).size(), 14u);
  EXPECT_EQ(sets_to_measure(5).size(), 10u);
  EXPECT_TRUE(sets_to_measure(most_changes + 1).empty());
}

// By its instructions, recompute has the largest effect. The measured steps show attention.
TEST(Attribution, MeasuredStepsDecideWhichChangeMattersMost) {
  std::vector<SetRatio> sets = {{1, 0.8, 0.002, 16384}, {2, 0.95, 0.002, 16384}};
  auto [a, b] = measured_pair(0.2, 0.05, sets);
  RunComparison c = compare_runs(a, b), back = compare_runs(b, a);
  expect_exact(c), expect_exact(back);
  const SettingEffect *attention = effect(c, "attention"), *recompute = effect(c, "recompute");
  ASSERT_TRUE(attention && recompute && attention->measured);
  EXPECT_NEAR(attention->ms / c.a.step_ms, -0.205, 0.002);
  EXPECT_NEAR(recompute->ms / c.a.step_ms, -0.055, 0.002);
  EXPECT_EQ(&c.settings[0], attention);
  EXPECT_NEAR(effect(back, "attention")->ms, -attention->ms, 1e-9 * c.a.step_ms);
  std::string all = join(c.sentences, "\n");
  EXPECT_TRUE(contains(all, "an attribution: Shapley values of measured steps): attention 79%, recompute 21%.")) << all;
  EXPECT_TRUE(contains(all, "The changes interact, mostly attention with recompute: together -")) << all;
  EXPECT_EQ(to_json(c)["attribution"]["method"], "shapley");
}

TEST(Attribution, WithoutMeasuredStepsTheOutputSaysSo) {
  auto [a, b] = measured_pair(0.2, 0.05, {{1, 0.8, 0.002, 16384}});
  for (int damage = 0; damage < 4; ++damage) {
    RunRecord damaged = b;
    Json& changes = damaged.documents["changes"];
    if (damage == 0) changes["missing"] = "2 seconds are not enough";
    if (damage == 1) changes["other"] = "another run";
    if (damage == 2) changes["sets"] = "none", changes["changes"] = 7;
    if (damage == 3) changes["sets"][0]["ratio"] = -1;
    RunComparison c = compare_runs(a, damaged);
    expect_exact(c);
    EXPECT_EQ(c.attribution.method, AttributionMethod::work);
    EXPECT_TRUE(contains(join(c.sentences, "\n"), "can act on, not measured): ")) << join(c.sentences, "\n");
    EXPECT_EQ(contains(join(c.notes, "\n"), "was not measured: 2 seconds are not enough."), damage == 0);
  }
}
