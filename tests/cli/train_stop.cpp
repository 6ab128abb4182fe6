// Runs that end early: signals, gradients that are not finite, files that cannot be written.
#include <sys/resource.h>

#include <cmath>

#include "cli/train_harness.h"

using namespace crest::test;
namespace {

RunResult train_while(const TrainFolder& f, std::vector<std::string> flags,
                      std::function<void(const RunningProcess&)> meanwhile) {
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

// Of no length, and with a rate that does not depend on it.
const std::vector<std::string> long_run =
    small +
    std::vector<std::string>{"--steps", endless, "--schedule", "constant", "--warmup", "4", "--val-every", "50"};

// A signal ends a run after the step that it comes in, and the run goes on where it was as if nothing had been.
void expect_saved_and_continued(const TrainFolder& f, int number, const std::vector<std::string>& flags) {
  size_t rows = 0;
  RunResult r = train_while(f, flags + std::vector<std::string>{"--out", "run"}, [&](const RunningProcess& process) {
    f.wait_for_rows(process, "run", 20);
    process.stop();  // so that the rows are those at the moment of the signal
    rows = f.log_rows("run");
    kill(process, number);
    process.resume();
  });
  EXPECT_EQ(r.code, 130) << r.err;
  EXPECT_TRUE(contains(r.err, "interrupted; saved at step ")) << r.err;
  EXPECT_TRUE(contains(r.err, "crest train --resume run")) << r.err;
  EXPECT_LE(f.log_rows("run"), rows + 2) << "the step under way, and a validation that was due";
  ASSERT_FALSE(f.checkpoints("run").empty());
  int step = std::stoi(f.checkpoints("run").back().substr(5));
  EXPECT_EQ(step, f.log("run").back()["step"]);
  ASSERT_EQ(f.resume("run", {"--stop-after", "60"}).code, 0);
  std::vector<std::string> straight = {"train", "--out", "straight", "--stop-after", std::to_string(step + 60)};
  ASSERT_EQ(run_crest(straight + flags, f.options()).code, 0);
  EXPECT_TRUE(f.last_state("run") == f.last_state("straight"));
  EXPECT_EQ(f.timeless_log("run"), f.timeless_log("straight"));
}

}  // namespace

TEST(Signals, TheFirstSavesAndTheRunContinuesBitwise) {
  for (int number : {SIGINT, SIGTERM}) {
    SCOPED_TRACE(number);
    expect_saved_and_continued(TrainFolder(), number, long_run);
  }
}

TEST(Signals, TwoRanksEndTheirStep) {
  expect_saved_and_continued(TrainFolder(), SIGTERM,
                             long_run + std::vector<std::string>{"--data-parallel", "2", "--threads", "2"});
}

TEST(Signals, ALongStepIsCutBetweenMicroSteps) {
  for (int64_t micro_steps = 1000;; micro_steps *= 4) {
    ASSERT_LT(micro_steps, 1'000'000) << "no signal cuts a step";
    TrainFolder f;
    auto flags = small + std::vector<std::string>{"--steps", "1", "--grad-accumulation", std::to_string(micro_steps)};
    RunResult r = train_while(f, flags + std::vector<std::string>{"--out", "run"}, [&](const RunningProcess& process) {
      f.wait_for_rows(process, "run", 1);  // of the validation before the first step
      double before = process.cpu_seconds();
      wait_until([&] { return process.cpu_seconds() > before + 0.05 || process.ended(); });  // into the step
      kill(process, SIGTERM);
    });
    if (r.code == 0) continue;  // this machine does it all in a moment: a longer step
    EXPECT_EQ(r.code, 130) << r.err;
    EXPECT_EQ(f.checkpoints("run"), std::vector<std::string>{"step-000000"});
    ASSERT_EQ(f.resume("run").code, 0);
    RunResult straight = run_crest(
        std::vector<std::string>{"train"} + flags + std::vector<std::string>{"--out", "straight"}, f.options());
    ASSERT_EQ(straight.code, 0) << straight.err;
    EXPECT_TRUE(f.last_state("run") == f.last_state("straight"));
    EXPECT_EQ(f.timeless_log("run"), f.timeless_log("straight"));
    return;
  }
}

TEST(Signals, TheSecondEndsAtOnce) {
  TrainFolder f(20000);
  // The first step takes one thread seconds, on any machine.
  std::vector<std::string> flags = {"--data", "data", "--model",     "nano", "--batch",     "192", "--steps",   "50",
                                    "--out",  "run",  "--precision", "fp32", "--val-every", "0",   "--threads", "1"};
  RunResult r = train_while(f, flags, [&](const RunningProcess& process) {
    process.wait("the run's folder", [&] { return f.exists("run/log.jsonl"); });
    double before = process.cpu_seconds();
    process.wait("the first step", [&] { return process.cpu_seconds() > before + 0.3; });
    kill(process, SIGINT);
    process.wait("the first signal", [&] { return !process.pending(SIGINT); });
    // Later than a repetition of the same request, and still in the same step.
    process.stop();
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    kill(process, SIGINT);
    process.resume();
  });
  EXPECT_EQ(r.code, 130) << r.err;
  EXPECT_TRUE(contains(r.err, "ended without saving")) << r.err;
  EXPECT_TRUE(f.checkpoints("run").empty());
  EXPECT_EQ(f.log_rows("run"), 0u) << "it did not wait for the step";
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
  RunResult r = train_while(f, {"--resume", "run", "--steps", endless, "--save-every", "0", "--val-every", "0"},
                            [&](const RunningProcess& process) {
                              f.wait_for_rows(process, "run", 40);
                              struct rlimit limit {
                                1, RLIM_INFINITY
                              };
                              EXPECT_EQ(prlimit(process, RLIMIT_FSIZE, &limit, nullptr), 0);
                            });
  signal(SIGXFSZ, old);
  EXPECT_EQ(r.code, 1) << r.err;
  EXPECT_TRUE(f.last_state("run") == before);
  EXPECT_EQ(f.resume("run", {"--steps", "8"}).code, 0);
}

TEST(OneAtATime, ASecondProcessIsRefused) {
  TrainFolder f;
  RunResult r =
      train_while(f, small + std::vector<std::string>{"--out", "run", "--steps", endless, "--val-every", "0"},
                  [&](const RunningProcess& process) {
                    f.wait_for_rows(process, "run", 5);
                    expect_error({"train", "--resume", "run"}, 1, {"another process is training"}, f.options());
                    expect_error({"train", "text.txt", "--out", "run", "--overwrite"}, 1,
                                 {"another process is training"}, f.options());
                    kill(process, SIGTERM);
                  });
  EXPECT_EQ(r.code, 130) << r.err;
  EXPECT_FALSE(f.checkpoints("run").empty());
}
