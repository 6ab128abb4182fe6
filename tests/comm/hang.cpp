// Silent ranks, and ranks in collectives without an end.
#include <gtest/gtest.h>

#include <future>
#include <map>
#include <mutex>
#include <thread>

#include "comm/control.h"
#include "comm/control_server.h"
#include "comm/gloo.h"
#include "comm/watchdog.h"
#include "loopback.h"
#include "ranks.h"
#include "wait.h"

namespace crest::test {

// A rank with a silent watchdog but standing
// connections: after it has joined, and before.
TEST(Watch, ASilentRankIsNamedWithWhatItDid) {
  NEEDS_LOOPBACK();
  auto hear = [](bool joins) {
    Socket listener = listen_on("127.0.0.1", 0);
    RankEnvironment two = environment(0, 2, port_of(listener));
    const std::string expected = "rank 1 has not answered for 1 s; last heard from in step 7";
    std::promise<std::string> said;
    std::thread other([&] {
      RankEnvironment own = two;
      own.rank = 1;
      Socket s = connect_to("127.0.0.1", own.port, after(longest_wait)).socket;
      FrameReader reader;
      Frame frame;
      EXPECT_EQ(introduce(s, reader, {1, 2, Introduction::watchdog, ""}, after(longest_wait), frame), Greeting::done);
      send_all(s, encode({'P', "1 f", "step 7"}));
      auto hears_of_itself = [&] {
        auto control = Control::join(own, longest_wait);
        control->get("never", longest_wait);
      };
      if (joins) expect_says(error_of(hears_of_itself), expected);
      said.get_future().get();
    });
    std::unique_ptr<Watchdog> dog;
    std::promise<std::string> heard;
    ControlOptions options = {"", 1};
    options.guard = [&](const RankEnvironment& own) {
      auto on_loss = [&](const PeerLost& lost, bool silent) {
        EXPECT_TRUE(silent);
        EXPECT_EQ(lost.rank(), 1);
        heard.set_value(lost.what());
      };
      dog = std::make_unique<Watchdog>(own, "", 1, longest_wait, options.activity, on_loss);
    };
    expect_says(error_of([&] {
                  auto control = Control::join(two, longest_wait, std::move(listener), options);
                  control->get("never", longest_wait);
                }),
                expected);
    expect_says(heard.get_future().get(), expected);
    said.set_value("");
    other.join();
  };
  auto joined = std::async(std::launch::async, hear, true);
  hear(false);
  joined.get();
}

TEST(Watch, RanksThatComputeForLongAreNotSilent) {
  NEEDS_LOOPBACK();
  std::atomic<bool> lost = false;
  auto errors = with_watched_ranks(
      1, 0.1, 0.1,
      [&](Control& control) {
        EXPECT_FALSE(wait_until([&] { return lost.load(); }, 1.5)) << "its watchdog spoke for it";
        control.check("here");
      },
      [&](int, auto&) { lost = true; });
  EXPECT_EQ(errors[0], "");
}

namespace {

// The errors of two ranks, each in a collective of Gloo, under watchdogs.
std::vector<std::string> hear_of_gloo(double hang_at_work, const std::function<void(Control&, Communicator&)>& work) {
  std::mutex mutex;
  std::map<int, std::unique_ptr<Communicator>> of_ranks;
  return with_watched_ranks(
      2, 0.1, hang_at_work,
      [&](Control& control) {
        auto connected = make_gloo_communicator(control, 2, "test", longest_wait, longest_wait);
        Communicator* comm = connected.get();
        {
          std::lock_guard lock(mutex);
          of_ranks[control.rank()] = std::move(connected);
        }
        work(control, *comm);
      },
      [&](int rank, const PeerLost& lost) {
        std::lock_guard lock(mutex);
        of_ranks.at(rank)->interrupt(lost);
      });
}

}  // namespace

// Ranks in different collectives wait until the error names both. Nothing is written to a wrong
// place, and no thread of Gloo throws.
TEST(Hang, RanksInDifferentCollectivesAreNamed) {
  NEEDS_LOOPBACK();
  if (!gloo_problem().empty()) GTEST_SKIP() << gloo_problem();
  using Call = std::function<void(Communicator&, float*)>;
  const Call four = [](auto&c, float*x) { c.all_reduce(x, DType::f32, 4, false); },
             eight = [](auto&c, float*x) { c.all_reduce(x, DType::f32, 8, false); },
             gather = [](auto&c, float*x) { c.all_gather(x, x + 8, DType::f32, 2); },
             send = [](auto&c, float*x) { c.broadcast(x, DType::f32, 3, 1); };
  struct Case {
    Call first, second;
    const char *of_first, *of_second;
  };
  for (auto& c : std::vector<Case>{{four, eight, "all-reduce of 4 f32", "all-reduce of 8 f32"},
                                   {gather, send, "all-gather of 2 f32", "broadcast of 3 f32"}}) {
    auto errors = hear_of_gloo(0.1, [&](Control& control, Communicator& comm) {
      float x[16] = {};
      control.activity().doing(control.rank() ? "validation" : "step 3");
      (control.rank() ? c.second : c.first)(comm, x);
    });
    for (auto& e : errors)
      expect_says(e,
                  std::string("rank 1 waits in another collective than the others; nothing has moved for 0.1 s: rank "
                              "0 in step 3, ") +
                      c.of_first + "; rank 1 in validation, " + c.of_second);
  }
}

TEST(Hang, ARankThatDoesNotComeIsNamed) {
  NEEDS_LOOPBACK();
  if (!gloo_problem().empty()) GTEST_SKIP() << gloo_problem();
  std::promise<void> over;
  auto errors = hear_of_gloo(0.2, [&](Control& control, Communicator& comm) {
    control.activity().doing("step 3", control.rank() == 1);
    if (control.rank() == 1) return over.get_future().wait();
    std::string error = error_of([&] { comm.barrier(); });
    over.set_value();
    fail(error);
  });
  expect_says(errors[0],
              "rank 1 does not take part in a collective; nothing has moved for 0.2 s: rank 0 in step 3, barrier; rank "
              "1 in step 3");
}

// Ranks wait for each other on their GPUs: the host sees work without progress.
TEST(Hang, WorkThatNeverEndsIsSaid) {
  NEEDS_LOOPBACK();
  auto errors = with_watched_ranks(
      2, 0.1, 0.3,
      [&](Control& control) {
        control.activity().doing("step 3", true);
        control.get("never", longest_wait);
      },
      [](int, auto&) {});
  for (auto& e : errors)
    expect_says(e, "no rank finishes its work; nothing has moved for 0.3 s: rank 0 in step 3; rank 1 in step 3");
}

TEST(Gloo, ARankThatFailsBreaksTheCollectiveOfTheOthersWithItsNumber) {
  NEEDS_LOOPBACK();
  if (!gloo_problem().empty()) GTEST_SKIP() << gloo_problem();
  auto errors = with_ranks(3, [](Control& control) {
    auto comm = make_gloo_communicator(control, 3, "test", 60, 60);
    comm->barrier();
    float x = 1;
    if (control.rank() == 1) fail("own problem");
    for (;;) comm->all_reduce(&x, DType::f32, 1, false);
  });
  expect_says(errors[0], "rank 1 is gone");
  expect_says(errors[1], "own problem");
  expect_says(errors[2], "rank 1 is gone");
}

TEST(Gloo, ARankThatHasLeftIsToBlame) {
  NEEDS_LOOPBACK();
  if (!gloo_problem().empty()) GTEST_SKIP() << gloo_problem();
  auto errors = with_ranks(3, [](Control& control) {
    auto comm = make_gloo_communicator(control, 3, "test", 60, 60);
    comm->barrier();
    float x = 1;
    if (control.rank() != 1) comm->all_reduce(&x, DType::f32, 1, false);
  });
  expect_says(errors[0], "rank 1 does not take part");
  expect_says(errors[2], "rank 1 does not take part");
}

}  // namespace crest::test
