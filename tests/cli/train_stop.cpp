// Runs that end early: signals, gradients that are not finite, files that cannot be written.
#include <sys/resource.h>

#include <cmath>

#include "cli/train_harness.h"

using namespace crest::test;
using namespace std::chrono_literals;

namespace {

// Waits until the run's log has so many rows.
void wait_for_rows(const TrainFolder& f, const std::string& run, size_t rows) {
  for (int i = 0; i < 30000; ++i) {
    std::string log = f.read(run + "/log.jsonl");
    if (size_t(std::count(log.begin(), log.end(), '\n')) >= rows) return;
    std::this_thread::sleep_for(2ms);
  }
  ADD_FAILURE() << "the log has no " << rows << " rows";
}

RunResult train_while(const TrainFolder& f, std::vector<std::string> flags, std::function<void(pid_t)> meanwhile) {
  RunOptions o = f.options();
  o.while_running = std::move(meanwhile);
  flags.insert(flags.begin(), "train");
  return run_crest(flags, o);
}

const std::vector<std::string> small = {"--data", "data", "--model", "tiny.toml", "--batch", "2", "--threads", "1"};

std::vector<std::string> operator+(std::vector<std::string> a, const std::vector<std::string>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

}  // namespace

TEST(Signals, TheFirstSavesAndTheRunContinuesBitwise) {
  TrainFolder f;
  constexpr int steps = 1500;
  ASSERT_EQ(f.train("straight", steps, {"--val-every", "500"}).code, 0);
  for (int number : {SIGINT, SIGTERM}) {
    std::string run = "run" + std::to_string(number);
    std::chrono::steady_clock::time_point sent;
    RunResult r = train_while(
        f, small + std::vector<std::string>{"--out", run, "--steps", std::to_string(steps), "--val-every", "500"},
        [&](pid_t pid) {
          wait_for_rows(f, run, 20);
          sent = std::chrono::steady_clock::now();
          kill(pid, number);
        });
    double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - sent).count();
    EXPECT_EQ(r.code, 130) << r.err;
    EXPECT_LT(seconds, 3);
    EXPECT_TRUE(contains(r.err, "interrupted; saved at step ")) << r.err;
    EXPECT_TRUE(contains(r.err, "crest train --resume " + run)) << r.err;
    ASSERT_FALSE(f.checkpoints(run).empty());
    EXPECT_EQ(std::stoi(f.checkpoints(run).back().substr(5)), f.log(run).back()["step"]);
    ASSERT_EQ(f.resume(run).code, 0);
    EXPECT_TRUE(f.last_state(run) == f.last_state("straight"));
    EXPECT_EQ(f.timeless_log(run), f.timeless_log("straight"));
  }
}

TEST(Signals, TwoRanksEndTheirStep) {
  TrainFolder f;
  std::vector<std::string> ranks = {"--data-parallel", "2", "--threads", "2"};
  ASSERT_EQ(f.train("straight", 300, ranks).code, 0);
  RunResult r = train_while(f, small + std::vector<std::string>{"--out", "run", "--steps", "300"} + ranks,
                            [&](pid_t pid) { wait_for_rows(f, "run", 20), kill(pid, SIGTERM); });
  EXPECT_EQ(r.code, 130) << r.err;
  ASSERT_EQ(f.resume("run").code, 0);
  EXPECT_TRUE(f.last_state("run") == f.last_state("straight"));
  EXPECT_EQ(f.timeless_log("run"), f.timeless_log("straight"));
}

TEST(Signals, ALongStepIsCutBetweenMicroSteps) {
  TrainFolder f;
  auto flags = small + std::vector<std::string>{"--steps", "1", "--grad-accumulation", "4000"};
  RunResult straight =
      run_crest(std::vector<std::string>{"train"} + flags + std::vector<std::string>{"--out", "straight"}, f.options());
  ASSERT_EQ(straight.code, 0) << straight.err;
  std::chrono::steady_clock::time_point sent;
  RunResult r = train_while(f, flags + std::vector<std::string>{"--out", "run"}, [&](pid_t pid) {
    wait_for_rows(f, "run", 1);  // of the validation before the first step
    std::this_thread::sleep_for(50ms);
    sent = std::chrono::steady_clock::now();
    kill(pid, SIGTERM);
  });
  EXPECT_LT(std::chrono::duration<double>(std::chrono::steady_clock::now() - sent).count(), straight.seconds);
  EXPECT_EQ(r.code, 130) << r.err;
  EXPECT_EQ(f.checkpoints("run"), std::vector<std::string>{"step-000000"});
  ASSERT_EQ(f.resume("run").code, 0);
  EXPECT_TRUE(f.last_state("run") == f.last_state("straight"));
  EXPECT_EQ(f.timeless_log("run"), f.timeless_log("straight"));
}

TEST(Signals, TheSecondEndsAtOnce) {
  TrainFolder f(20000);
  // A step of seconds: the first signal waits for its end.
  std::vector<std::string> flags = {"--data", "data",        "--model", "nano",  "--batch", "96",          "--steps",
                                    "50",     "--val-every", "0",       "--out", "run",     "--precision", "fp32"};
  std::chrono::steady_clock::time_point second;
  RunResult r = train_while(f, flags, [&](pid_t pid) {
    wait_for_rows(f, "run", 1);
    std::this_thread::sleep_for(300ms);  // into the second step
    kill(pid, SIGINT);
    std::this_thread::sleep_for(100ms);
    second = std::chrono::steady_clock::now();
    kill(pid, SIGINT);
  });
  EXPECT_LT(std::chrono::duration<double>(std::chrono::steady_clock::now() - second).count(), 2);
  EXPECT_EQ(r.code, 130) << r.err;
  EXPECT_TRUE(contains(r.err, "ended without saving")) << r.err;
  EXPECT_TRUE(f.checkpoints("run").empty());
}

TEST(NotFinite, FiveInARowStopAndTheLastGoodCheckpointStays) {
  TrainFolder f;
  ASSERT_EQ(f.train("run", 4, {"--val-every", "0"}).code, 0);
  std::string good = f.last_state("run");
  // The rate throws the weights out of the world in one step; every later gradient is NaN or infinite. A checkpoint of
  // every step would push the good one out if saving alone removed old ones.
  std::vector<std::string> wild = {"train",  "--resume", "run",    "--steps", "40",           "--lr", "1e30",
                                   "--clip", "0",        "--keep", "1",       "--save-every", "1"};
  expect_error(wild, 1,
               {"5 steps in a row", "not finite", "last good checkpoint is run/checkpoints/step-000004", "Lower --lr"},
               f.options());
  EXPECT_EQ(f.checkpoints("run").back(), "step-000004");
  EXPECT_TRUE(f.last_state("run") == good);
  auto rows = f.log("run");
  ASSERT_GE(rows.size(), 5u);
  for (size_t i = rows.size() - 5; i < rows.size(); ++i) EXPECT_EQ(rows[i]["skipped"], true) << rows[i];
  RunResult r = f.resume("run", {"--steps", "12", "--lr", "1e-3", "--clip", "1"});
  ASSERT_EQ(r.code, 0) << r.err;
  rows = f.log("run");
  EXPECT_EQ(rows.back()["step"], 12);
  for (auto& row : rows) EXPECT_EQ(row.value("skipped", false), false) << row;
}

TEST(NotFinite, Fp16SearchesItsLossScale) {
  TrainFolder f;
  RunResult r =
      f.train("run", 140,
              {"--precision", "fp16", "--loss-scale", "1e30", "--val-every", "0", "--save-every", "1", "--keep", "2"});
  ASSERT_EQ(r.code, 0) << r.err;
  EXPECT_TRUE(contains(r.err, "overflow at loss scale 1e+30, update skipped (1 so far), scale now 5e+29")) << r.err;
  int skipped = 0;
  bool searching = true;
  for (auto& row : f.log("run")) {
    skipped += row["skipped"].get<bool>();
    if (!row["skipped"].get<bool>()) searching = false;
    EXPECT_EQ(row["skipped"].get<bool>(), searching) << "the search ends once: " << row;
    EXPECT_TRUE(row["loss"].is_number()) << row;
  }
  // From 1e30 to where gradients of some 1e-1 fit below 65504: about 80 halvings.
  EXPECT_GT(skipped, 60);
  EXPECT_LT(skipped, 110);
  auto state = nlohmann::json::parse(f.read("run/checkpoints/step-000140/state.json"))["state"];
  EXPECT_EQ(state["skipped"], skipped);
  EXPECT_EQ(state["adam_step"], 140 - skipped);
  EXPECT_EQ(f.checkpoints("run").size(), 2u) << "old checkpoints go once a step has succeeded";
}

// Everything that the process writes fails, standard error too (so that tests/train/run_faults.cpp looks at the text).
TEST(FullDisk, TheExitCodeIsOneAndTheCheckpointIntact) {
  TrainFolder f;
  ASSERT_EQ(f.train("run", 5).code, 0);
  std::string before = f.last_state("run");
  auto old = signal(SIGXFSZ, SIG_IGN);  // in the child too: a write beyond the limit fails
  RunResult r = train_while(f, {"--resume", "run", "--steps", "1000000", "--save-every", "0", "--val-every", "0"},
                            [&](pid_t pid) {
                              wait_for_rows(f, "run", 40);
                              struct rlimit limit {
                                1, RLIM_INFINITY
                              };
                              ASSERT_EQ(prlimit(pid, RLIMIT_FSIZE, &limit, nullptr), 0);
                            });
  signal(SIGXFSZ, old);
  EXPECT_EQ(r.code, 1) << r.err;
  EXPECT_TRUE(f.last_state("run") == before);
  EXPECT_EQ(f.resume("run", {"--steps", "8"}).code, 0);
}

TEST(OneAtATime, ASecondProcessIsRefused) {
  TrainFolder f;
  RunResult r = train_while(
      f, small + std::vector<std::string>{"--out", "run", "--steps", "1000000", "--val-every", "0"}, [&](pid_t pid) {
        wait_for_rows(f, "run", 5);
        expect_error({"train", "--resume", "run"}, 1, {"another process is training"}, f.options());
        expect_error({"train", "text.txt", "--out", "run", "--overwrite"}, 1, {"another process is training"},
                     f.options());
        kill(pid, SIGTERM);
      });
  EXPECT_EQ(r.code, 130) << r.err;
  EXPECT_FALSE(f.checkpoints("run").empty());
}
