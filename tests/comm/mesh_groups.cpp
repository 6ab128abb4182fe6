// Ranks of a mesh exchange along its axes, and all groups end when a rank is lost.
#include "comm/mesh_groups.h"

#include <gtest/gtest.h>

#include <numeric>
#include <thread>

#include "backend/cuda/nccl.h"
#include "backend/runtime.h"
#include "comm/control_communicator.h"
#include "comm/exchange.h"
#include "comm/gloo.h"
#include "comm/local.h"
#include "contains.h"
#include "device.h"
#include "device/rank_device.h"
#include "loopback.h"
#include "ranks.h"

namespace crest::test {

namespace {

// Each axis, each pair, and all.
std::set<Axes> sets_of_axes() {
  std::set<Axes> sets = {Axes::all()};
  for (Axis a : axes_outermost_first)
    for (Axis b : axes_outermost_first) sets.insert(a | b);
  return sets;
}

// Sums and gathers along every set of axes: the numbers of its members, in their order.
void exchange_along_axes(const MeshGroups& groups) {
  for (Axes axes : sets_of_axes()) {
    std::vector<int> members = groups.mesh().group(groups.rank(), axes);
    Communicator& group = groups.group(axes);
    ASSERT_EQ(group.size(), int(members.size())) << axes.text();
    ASSERT_EQ(group.rank(), groups.index(axes)) << axes.text();
    auto sum = float(groups.rank() + 1);
    group.all_reduce(&sum, DType::f32, 1, false);
    EXPECT_EQ(sum, float(std::accumulate(members.begin(), members.end(), int(members.size())))) << axes.text();
    auto own = double(groups.rank());
    std::vector<double> all(members.size());
    group.all_gather(&own, all.data(), DType::f64, 1);
    EXPECT_EQ(all, std::vector<double>(members.begin(), members.end())) << axes.text();
  }
}

// Until a rank is lost.
void exchange_until_lost(const MeshGroups& groups) {
  for (;;) exchange_along_axes(groups);
}

const Mesh two_by_two = {{Axis::data, 2}, {Axis::tensor, 2}};

}  // namespace

TEST(MeshGroups, ThreadsExchangeAlongTheirAxes) {
  for (const Mesh& mesh : {Mesh(), two_by_two, Mesh{{Axis::pipeline, 2}, {Axis::data, 2}, {Axis::tensor, 2}},
                           Mesh{{Axis::data, 3}, {Axis::context, 2}}}) {
    SCOPED_TRACE(mesh.text());
    auto worlds = make_local_communicators(mesh.ranks());
    std::vector<MeshGroups> groups;  // made without waiting: one thread may make all ranks'
    for (auto& world : worlds) groups.emplace_back(mesh, *world, sets_of_axes());
    std::vector<std::thread> threads;
    for (auto& own : groups) threads.emplace_back([&] { exchange_along_axes(own), exchange_along_axes(own); });
    for (auto& t : threads) t.join();
  }
}

TEST(MeshGroups, ProcessesExchangeAlongTheirAxes) {
  if (!gloo_problem().empty()) GTEST_SKIP() << gloo_problem();
  NEEDS_LOOPBACK();
  for (const Mesh& mesh : {Mesh{{Axis::tensor, 2}}, two_by_two}) {
    auto errors = with_ranks(mesh.ranks(), [&](Control& control) {
      auto world = make_gloo_communicator(control, mesh.ranks(), "test", 60, 60);
      MeshGroups groups(mesh, *world, sets_of_axes());
      exchange_along_axes(groups), exchange_along_axes(groups);
      world->barrier();
    });
    for (auto& e : errors) EXPECT_EQ(e, "") << mesh.text();
  }
}

TEST(MeshGroups, TheControlChannelExchangesAlongTheirAxes) {
  NEEDS_LOOPBACK();
  auto errors = with_ranks(4, [&](Control& control) {
    auto world = make_control_communicator(control);
    MeshGroups groups(two_by_two, *world, sets_of_axes());
    exchange_along_axes(groups), exchange_along_axes(groups);
    // The groups of an axis need not wait for each other.
    const int among_data = groups.index(Axis::data), among_tensor = groups.index(Axis::tensor);
    for (int n = 0; n < 3 * among_tensor; ++n) groups.group(Axis::data).barrier();
    std::string text = groups.rank() == 2 * among_data ? "from the first" : "";
    EXPECT_EQ(broadcast_text(groups.group(Axis::tensor), text, 0), "from the first");
  });
  for (auto& e : errors) EXPECT_EQ(e, "");
}

// Each rank waits for a rank that waits for another: no group is complete.
TEST(MeshGroups, GroupsOfTheControlChannelThatWaitInACircleEnd) {
  NEEDS_LOOPBACK();
  auto errors = with_ranks(4, [&](Control& control) {
    auto world = make_control_communicator(control);
    MeshGroups groups(two_by_two, *world, sets_of_axes());
    const bool across = control.rank() == 0 || control.rank() == 3;
    groups.group(across ? Axis::data : Axis::tensor).barrier();
  });
  for (auto& e : errors)
    EXPECT_TRUE(contains(e,
                         "rank 0 in barrier of ranks 0,2; rank 1 in barrier of ranks 0,1; rank 2 in barrier of ranks "
                         "2,3; rank 3 in barrier of ranks 1,3"))
        << e;
}

TEST(MeshGroups, ASetThatSpansTheMeshIsTheWorld) {
  auto worlds = make_local_communicators(2);
  for (auto& world : worlds) {
    MeshGroups groups(Mesh{{Axis::data, 2}}, *world, {Axis::data});
    EXPECT_EQ(&groups.group(Axis::data), world.get());
    EXPECT_EQ(&groups.group(Axis::data | Axis::tensor), world.get());
    EXPECT_THROW(groups.group(Axis::tensor), Error) << "no Program uses it";
    EXPECT_THROW(MeshGroups(two_by_two, *world, {Axis::data}), Error) << "four ranks";
  }
}

TEST(MeshGroups, AThreadThatLeavesEndsAllGroups) {
  auto worlds = make_local_communicators(4);
  std::vector<MeshGroups> groups;
  for (auto& world : worlds) groups.emplace_back(two_by_two, *world, sets_of_axes());
  std::vector<int> lost(4);
  std::vector<std::thread> threads;
  for (auto& own : groups)
    threads.emplace_back([&] {
      exchange_along_axes(own);
      if (own.rank() == 3) return own.leave();
      try {
        exchange_until_lost(own);
      } catch (const PeerLost&) {
        lost[size_t(own.rank())] = 1;
        own.leave();
      }
    });
  for (auto& t : threads) t.join();
  EXPECT_EQ(lost, (std::vector<int>{1, 1, 1, 0}));
}

TEST(MeshGroups, AProcessThatEndsEndsAllGroups) {
  if (!gloo_problem().empty()) GTEST_SKIP() << gloo_problem();
  NEEDS_LOOPBACK();
  for (const Mesh& mesh : {Mesh{{Axis::tensor, 2}}, two_by_two}) {
    const int last = mesh.ranks() - 1;
    auto errors = with_ranks(mesh.ranks(), [&](Control& control) {
      auto world = make_gloo_communicator(control, mesh.ranks(), "test", 60, 60);
      MeshGroups groups(mesh, *world, sets_of_axes());
      exchange_along_axes(groups);
      if (control.rank() == last) fail("this rank fails");
      exchange_until_lost(groups);
    });
    for (int r = 0; r < last; ++r)
      EXPECT_TRUE(contains(errors[size_t(r)], "rank " + std::to_string(last) + " is gone")) << r << errors[size_t(r)];
  }
}

TEST(MeshGroups, GpusExchangeAlongTheirAxes) {
  if (test_device(1).kind != "cuda" || usable_gpus("cuda") < 2)
    GTEST_SKIP() << "needs CREST_TEST_DEVICE=cuda, two GPUs";
  if (!nccl_problem().empty()) GTEST_SKIP() << nccl_problem();
  auto errors = with_ranks(2, [&](Control& control) {
    const Device device = find_device("cuda:" + std::to_string(control.rank()), 1);
    auto world = make_nccl_communicator(control, 2, "test", device, 60);
    auto runtime = make_runtime(device, nullptr);
    auto* memory = static_cast<char*>(runtime->allocate(16));
    auto sum_over = [&](Communicator& group) {
      auto x = float(control.rank() + 1);
      runtime->write(memory, &x, sizeof x);
      runtime->synchronize();
      group.set_stream(nullptr);
      group.all_reduce(memory, DType::f32, 1, false);
      group.synchronize();
      runtime->read(&x, memory, sizeof x);
      return x;
    };
    auto both = world->split({0, 1});
    EXPECT_EQ(sum_over(*both), 3);
    MeshGroups groups(Mesh{{Axis::data, 2}}, *world, {Axis::data, Axis::tensor});
    EXPECT_EQ(sum_over(groups.group(Axis::data)), 3);
    EXPECT_EQ(sum_over(groups.group(Axis::tensor)), float(control.rank() + 1)) << "a group of one rank";
    EXPECT_GE(groups.device_bytes(), world->device_bytes());
    runtime->release(memory, 16);
    world->barrier();
  });
  for (auto& e : errors) EXPECT_EQ(e, "");
}

}  // namespace crest::test
