// How well ranks scale: the loss against ideal speed, split into parts.
#include "compare/scaling.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "compare/compare_text.h"
#include "compare/sentences.h"
#include "compare/synthetic.h"

using namespace crest;
using namespace crest::test;

namespace {

bool is_in(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

// Two ranks with the same work each: the parts of the lost time add up.
TEST(Scaling, AddsUp) {
  Synthetic one = gpt2(), two = gpt2();
  two.recipe.ranks = 2;
  Profile p = make_profile(two);
  double exposed = 0.02 * p.step_median_ms(), waits = 0.01 * p.step_median_ms();
  for (int r : {0, 1}) {
    ProfileRank rank;
    rank.rank = r, rank.step_ms = p.step_median_ms(), rank.exposed_ms = exposed, rank.idle_ms = p.idle_ms;
    rank.waiting_ms = {0, r == 0 ? waits : 0};
    rank.compute_ms = p.busy_ms - exposed - rank.waiting_sum_ms();
    p.ranks.push_back(rank);
  }
  RunRecord a = make_record(one, "one"), b = record_of(p, "two");
  for (bool mirrored : {false, true}) {
    RunComparison c = mirrored ? compare_runs(b, a) : compare_runs(a, b);
    ASSERT_TRUE(c.scaling);
    const Scaling& s = *c.scaling;
    EXPECT_EQ(s.few_ranks, 1);
    EXPECT_EQ(s.more_ranks, 2);
    EXPECT_TRUE(s.same_work);
    double sum = 0;
    std::map<std::string, double> rows;
    for (auto& r : s.rows) sum += r.ms, rows[r.label] = r.ms;
    EXPECT_NEAR(sum, s.lost_ms(), 1e-9 * s.step_ms);
    EXPECT_NEAR(rows["waiting for rank 1"], waits, 1e-9 * s.step_ms);
    EXPECT_EQ(rows.count("waiting for rank 0"), 0u);
    EXPECT_TRUE(is_in(compare_text(c, {}), "Scaling from 1 to 2 ranks"));
  }
  EXPECT_FALSE(compare_runs(a, make_record(one, "again")).scaling);
}

// A step of one rank, and one of two, `slower`
// times as long. change: of the recipe of the two.
static RunComparison scaled(double slower, bool mirrored, const std::map<std::string, std::string>& change = {}) {
  Synthetic one = gpt2(), two = gpt2();
  one.idle_ms = two.idle_ms = 0;
  two.slowdown = [=](const ProfileInstr&) { return 2.0 * slower; };
  Profile p = make_profile(two);
  p.recipe["ranks"] = 2, p.tokens *= 2;
  for (auto& [key, value] : change) (key == "name" ? p.device : p.recipe)[key] = value;
  RunRecord a = make_record(one, "one"), b = record_of(p, "two");
  return mirrored ? compare_runs(b, a) : compare_runs(a, b);
}

// The sentence about scaling is the same in both directions, and claims no loss within noise.
TEST(Scaling, IsJudgedByNoise) {
  for (bool mirrored : {false, true}) {
    Scaling slow = *scaled(1.25, mirrored).scaling, same = *scaled(1.003, mirrored).scaling;
    EXPECT_TRUE(slow.beyond_noise);
    EXPECT_TRUE(is_in(scaling_sentence(slow), "2 ranks reach 80.")) << scaling_sentence(slow);
    EXPECT_TRUE(is_in(scaling_sentence(slow), "the largest part of the loss is")) << scaling_sentence(slow);
    EXPECT_FALSE(same.beyond_noise);
    EXPECT_TRUE(is_in(scaling_sentence(same), "No difference between 2 ranks and ideal speed beyond noise"))
        << scaling_sentence(same);
    EXPECT_FALSE(is_in(scaling_sentence(same), "largest")) << scaling_sentence(same);
  }
}

// A different model on more ranks is no loss by ranks.
TEST(Scaling, IsNotSaidWhereMoreThanTheRanksDiffers) {
  for (bool mirrored : {false, true}) {
    EXPECT_TRUE(scaled(1.25, mirrored, {{"reduce", "bucket"}, {"shard", "weights"}, {"gather", "forward"}}).scaling);
    for (auto [key, value] : {std::pair("model", "another"), {"precision", "fp32"}, {"name", "another device"}}) {
      RunComparison c = scaled(1.25, mirrored, {{key, value}});
      EXPECT_FALSE(c.scaling) << key;
      EXPECT_TRUE(std::any_of(c.notes.begin(), c.notes.end(), [](auto& n) { return is_in(n, "More than the ranks"); }));
    }
  }
}
