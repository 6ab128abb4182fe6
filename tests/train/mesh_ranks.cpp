// Processes of a mesh train together. A killed rank ends all of them, including ranks that never
// communicate with it.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <csignal>
#include <cstdlib>
#include <set>
#include <sstream>
#include <string>

#include "comm/gloo.h"
#include "comm/launch.h"
#include "comm/loopback.h"
#include "comm/rank_group.h"
#include "contains.h"
#include "core/timer.h"
#include "train/harness.h"

namespace crest::test {

namespace {

constexpr const char *mesh_variable = "CREST_TEST_MESH", *killed_variable = "CREST_TEST_KILLED";

constexpr int steps_together = 2;

// Loss and norm of some steps.
std::string trained(Engine& engine, const Recipe& r) {
  std::string text;
  for (int64_t s = 0; s < steps_together; ++s) {
    const StepResult result =
        engine.step(s, 0.1, 1, [&](uint64_t g, int32_t* x, int32_t* y, int32_t*) { synthetic(r, g, x, y); });
    text += fmt::format("{} {} ", result.loss, result.grad_norm);
  }
  return text;
}

Recipe recipe_of_mesh(const char* mesh) {
  Recipe r = tiny_recipe(true);
  r.mesh = parse_mesh(mesh), r.ranks = r.mesh.ranks(), r.seq = 16, r.optimizer = "sgd";
  r.pass_settings = {{"bucket", "20kB"}, {"reduce", "bucket"}, {"shard", "gradients"}};
  return r;
}

int train_together() {
  auto group = RankGroup::join(*rank_environment(), {});
  const Recipe r = recipe_of_mesh(std::getenv(mesh_variable));
  SessionUse use;
  use.train = use.update = true;
  Engine engine(compile(r, this_cpu(1), session_programs(r, use)), {}, &group->communicator(), &group->host());
  engine.initialize_weights(3);
  const std::string text = trained(engine, r);
  if (group->rank() == 0) tell_launcher(text);
  group->done();
  return 0;
}

// The work of a process started by launch_ranks() in the test.
int train_until_lost() {
  auto group = RankGroup::join(*rank_environment(), {});
  Recipe r = tiny_recipe();
  r.mesh = parse_mesh(std::getenv(mesh_variable)), r.ranks = r.mesh.ranks(), r.seq = 16;
  r.pass_settings = {{"bucket", "20kB"}};
  if (r.copies() > 1) r.pass_settings["shard"] = "weights";
  if (r.mesh.size(Axis::pipeline) > 1) r.grad_accumulation = 2;
  SessionUse use;
  use.train = use.update = true;
  const CompileOptions of_stage = {.stage = stage_of_rank(r, group->rank())};
  Engine engine(compile(r, this_cpu(1), session_programs(r, use), of_stage), {}, &group->communicator(),
                &group->host());
  engine.initialize_weights(3);
  SampleSource source = [&](uint64_t g, int32_t* x, int32_t* y, int32_t*) { synthetic(r, g, x, y); };
  try {
    for (int64_t s = 0;; ++s) {
      group->doing("step " + std::to_string(s));
      if (s == 5 && group->rank() == std::atoi(std::getenv(killed_variable))) {
        tell_launcher("killed");
        raise(SIGKILL);
      }
      engine.step(s, 1e-3, 1, source);
    }
  } catch (const PeerLost& lost) {
    const PeerLost noticed = group->noticed(lost);
    tell_launcher(fmt::format("rank {} has lost rank {}", group->rank(), noticed.rank()));
    throw noticed;
  }
}

}  // namespace

// With sequences shared between the processes.
TEST(MeshRanks, ContextTrainsLikeOneProcess) {
  if (is_launched()) std::_Exit(run_rank(train_together));
  if (!gloo_problem().empty()) GTEST_SKIP() << gloo_problem();
  NEEDS_LOOPBACK();
  for (const char* mesh : {"context=2", "data=2,context=2"}) {
    SCOPED_TRACE(mesh);
    Recipe one = recipe_of_mesh(mesh);
    one.batch *= one.data_ranks(), one.ranks = 1, one.mesh = Mesh(), one.pass_settings.clear();
    Engine engine = make_engine(one);
    std::string together;
    LaunchOptions launch;
    launch.ranks = parse_mesh(mesh).ranks();
    launch.arguments = {own_arguments()[0], "--gtest_filter=MeshRanks.ContextTrainsLikeOneProcess", "--gtest_brief=1"};
    launch.variables = {{mesh_variable, mesh}};
    launch.told = [&](const std::string& text) { together = text; };
    launch_ranks(launch);
    std::istringstream found(together), wanted(trained(engine, one));
    for (int i = 0; i < 2 * steps_together; ++i) {
      double x = 0, y = 0;
      ASSERT_TRUE(found >> x && wanted >> y) << together;
      EXPECT_NEAR(x, y, 1e-5 * y) << i;
    }
  }
}

TEST(MeshRanks, KilledEndsAllWithItsNumber) {
  if (is_launched()) std::_Exit(run_rank(train_until_lost));
  if (!gloo_problem().empty()) GTEST_SKIP() << gloo_problem();
  NEEDS_LOOPBACK();
  struct Case {
    const char* mesh;
    int killed;
  };
  for (auto& c : {Case{"data=2,context=2", 3}, {"context=2", 1}, {"pipeline=2,data=2", 3}}) {
    SCOPED_TRACE(c.mesh);
    std::set<std::string> told, expected = {"killed"};
    const int ranks = parse_mesh(c.mesh).ranks();
    for (int rank = 0; rank < ranks; ++rank)
      if (rank != c.killed) expected.insert(fmt::format("rank {} has lost rank {}", rank, c.killed));
    Timer timer;
    LaunchOptions launch;
    launch.ranks = ranks;
    launch.arguments = {own_arguments()[0], "--gtest_filter=MeshRanks.KilledEndsAllWithItsNumber", "--gtest_brief=1"};
    launch.variables = {{mesh_variable, c.mesh}, {killed_variable, std::to_string(c.killed)}};
    launch.told = [&](const std::string& text) {
      if (told.insert(text).second && text == "killed") timer = {};
    };
    try {
      launch_ranks(launch);
      ADD_FAILURE() << "no error";
    } catch (const PeerLost& lost) {
      EXPECT_LT(timer.seconds(), 5) << "docs/concepts/parallelism.md";
      EXPECT_EQ(lost.rank(), c.killed);
      EXPECT_TRUE(contains(lost.what(), fmt::format("rank {} was ended by signal 9", c.killed))) << lost.what();
    }
    EXPECT_EQ(told, expected);
  }
}

}  // namespace crest::test
