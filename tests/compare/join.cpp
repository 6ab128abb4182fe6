// Matching of the rows of two steps.
#include "compare/join.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "compare/synthetic.h"

using namespace crest;
using namespace crest::test;

namespace {

ProfileInstr row(const std::string& op, const std::string& op_class, std::vector<std::string> scopes,
                 const std::string& phase = "forward") {
  ProfileInstr r;
  r.op = op, r.op_class = op_class, r.scopes = std::move(scopes), r.phase = phase, r.ms = 1;
  return r;
}

const JoinedGroup* group_of(const Join& join, const std::string& role, const std::string& phase) {
  for (auto& g : join.groups)
    if (g.phase.find(phase) != std::string::npos && std::count(g.roles.begin(), g.roles.end(), role)) return &g;
  return nullptr;
}

// Every row stands in exactly one group.
void expect_complete(const Join& join, size_t rows_a, size_t rows_b) {
  std::vector<int> a, b;
  for (auto& g : join.groups) {
    a.insert(a.end(), g.a.begin(), g.a.end());
    b.insert(b.end(), g.b.begin(), g.b.end());
  }
  std::sort(a.begin(), a.end()), std::sort(b.begin(), b.end());
  ASSERT_EQ(a.size(), rows_a);
  ASSERT_EQ(b.size(), rows_b);
  for (size_t i = 0; i < a.size(); ++i) EXPECT_EQ(a[i], int(i));
  for (size_t i = 0; i < b.size(); ++i) EXPECT_EQ(b[i], int(i));
}

Join join_recipes(const Synthetic& a, const Synthetic& b) {
  Profile x = make_profile(a), y = make_profile(b);
  Join join = join_rows(x.instrs, y.instrs, GroupBy::scope);
  expect_complete(join, x.instrs.size(), y.instrs.size());
  EXPECT_EQ(join.how, "scopes");
  return join;
}

Synthetic nano() {
  Synthetic s;
  s.recipe = recipe_of("nano", 2, 64);
  return s;
}

}  // namespace

TEST(CompareJoin, RolesAndTheirNames) {
  EXPECT_EQ(role_of("h.11.attn.softmax"), "attn.softmax");
  EXPECT_EQ(role_of("lm_head"), "lm_head");
  EXPECT_EQ(role_of("h.x.y"), "h.x.y");
  EXPECT_EQ(role_of("h.3"), "h.3");
  EXPECT_EQ(role_of("h."), "h.");
  EXPECT_EQ(role_label({"attn", "attn.scores", "attn.softmax"}), "attention");
  EXPECT_EQ(role_label({"attn.softmax"}), "attention softmax");
  EXPECT_EQ(role_label({"mlp.fc", "mlp.act"}), "MLP in + MLP activation");
  EXPECT_EQ(role_label({"a", "b", "c", "d", "e"}), "a + b + c + 2 more");
}

TEST(CompareJoin, NaiveAttentionMatchesFlash) {
  Synthetic a = nano(), b = nano();
  a.recipe.attention = "naive";
  Join join = join_recipes(a, b);
  for (const char* phase : {"forward", "backward"}) {
    const JoinedGroup* g = group_of(join, "attn", phase);
    ASSERT_TRUE(g) << phase;
    EXPECT_EQ(g->label, "attention");
    EXPECT_EQ(g, group_of(join, "attn.softmax", phase));
    EXPECT_NE(g, group_of(join, "attn.qkv", phase)) << "linear layers are not attention";
    EXPECT_EQ(g->b.size(), 4u) << "one instruction a layer of nano";
    EXPECT_GT(g->a.size(), 12u);
  }
}

TEST(CompareJoin, UnfusedMatchesFused) {
  Synthetic a = nano(), b = nano();
  a.recipe.fusion = "off";
  Join join = join_recipes(a, b);
  const JoinedGroup* g = group_of(join, "mlp.act", "forward");
  ASSERT_TRUE(g);
  EXPECT_EQ(g, group_of(join, "mlp.fc", "forward")) << "linear_gelu serves both";
  EXPECT_EQ(g->b.size(), 4u);
  EXPECT_GT(g->a.size(), 4u * 8);
  const JoinedGroup* loss = group_of(join, "loss", "forward");
  ASSERT_TRUE(loss);
  EXPECT_EQ(loss->phase, "forward + backward") << "the fused loss makes the gradient at once";
  for (auto& one : join.groups) EXPECT_TRUE(!one.a.empty() && !one.b.empty()) << one.label << " " << one.phase;
}

TEST(CompareJoin, OtherShapesAndFamiliesMatch) {
  Synthetic gpt = nano(), deep = nano(), llama = nano();
  deep.recipe = recipe_of("micro", 2, 64);
  for (auto& g : join_recipes(gpt, deep).groups) EXPECT_TRUE(!g.a.empty() && !g.b.empty()) << g.label << " " << g.phase;
  llama.recipe = recipe_of("llama-nano", 2, 64);
  Join join = join_recipes(gpt, llama);
  EXPECT_EQ(group_of(join, "mlp.fc", "forward"), group_of(join, "mlp.gate", "forward"));
  EXPECT_EQ(group_of(join, "mlp.fc", "forward"), group_of(join, "mlp.up", "forward"));
  EXPECT_EQ(group_of(join, "attn", "forward"), group_of(join, "attn.rope", "forward"));
}

TEST(CompareJoin, AllUpdatesAreOneGroup) {
  Synthetic a = nano(), b = nano();
  a.recipe.fusion = "off";  // an instruction a parameter
  const JoinedGroup* g = group_of(join_recipes(a, b), "update", "update");
  ASSERT_TRUE(g);
}

TEST(CompareJoin, DoesNotDependOnTheOrderOfTheSides) {
  Synthetic a = nano(), b = nano();
  a.recipe.attention = "naive", a.recipe.fusion = "off", b.recipe.recompute = "full";
  auto groups = [](const Join& join, bool swapped) {
    std::set<std::pair<std::vector<int>, std::vector<int>>> set;
    for (auto& g : join.groups) set.insert(swapped ? std::pair{g.b, g.a} : std::pair{g.a, g.b});
    return set;
  };
  EXPECT_EQ(groups(join_recipes(a, b), false), groups(join_recipes(b, a), true));
}

TEST(CompareJoin, WithoutScopesByClass) {
  std::vector<ProfileInstr> traced = {row("gemm", "contraction", {}), row("gemm", "contraction", {}, "backward"),
                                      row("norm", "normalization", {})};
  std::vector<ProfileInstr> own = {row("linear", "contraction", {"h.0.mlp.fc"}), row("norm", "normalization", {"ln_f"}),
                                   row("linear_dx", "contraction", {"h.0.mlp.fc"}, "backward")};
  Join by_phase = join_rows(traced, own, GroupBy::scope);
  EXPECT_EQ(by_phase.how, "classes and phases");
  EXPECT_EQ(by_phase.groups.size(), 3u);
  expect_complete(by_phase, 3, 3);
  for (auto& r : traced) r.phase = "unknown";
  Join by_class = join_rows(traced, own, GroupBy::scope);
  EXPECT_EQ(by_class.how, "classes");
  EXPECT_EQ(by_class.groups.size(), 2u);
  EXPECT_EQ(by_class.groups[0].label, "matmul");
  expect_complete(by_class, 3, 3);
  own[0].layer = 0;
  Join by_layer = join_rows(own, own, GroupBy::layer);
  EXPECT_EQ(by_layer.how, "layers");
  EXPECT_EQ(by_layer.groups.size(), 2u);
  EXPECT_TRUE(join_rows({}, {}, GroupBy::scope).groups.empty());
}
