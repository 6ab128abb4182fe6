// Runs with an early end: signals, NaN or infinite gradients, unwritable files.
#include <sys/resource.h>

#include <cmath>
#include <cstdlib>
#include <cstring>

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

// No limit on the length, and a learning rate that does not depend on it.
const std::vector<std::string> long_run =
    small +
    std::vector<std::string>{"--steps", endless, "--schedule", "constant", "--warmup", "4", "--val-every", "50"};

// A signal ends a run after the current step, and the run continues there as if nothing had
// happened.
void expect_saved_and_continued(const TrainFolder& f, int number, const std::vector<std::string>& flags) {
  size_t rows = 0;
  RunResult r = train_while(f, flags + std::vector<std::string>{"--out", "run"}, [&](const RunningProcess& process) {
    f.wait_for_rows(process, "run", 20);
    process.stop();  // the rows at the moment of the signal
    rows = f.log_rows("run");
    kill(process, number);
    process.resume();
  });
  EXPECT_EQ(r.code, 130) << r.err;
  EXPECT_TRUE(contains(r.err, "interrupted; saved at step ")) << r.err;
  EXPECT_TRUE(contains(r.err, std::string("(SIG") + sigabbrev_np(number) + ")")) << r.err;
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
  for (int number : {SIGINT, SIGTERM, SIGHUP, SIGPIPE}) {
    SCOPED_TRACE(number);
    expect_saved_and_continued(TrainFolder(), number, long_run);
  }
}

// A closed terminal or pipe repeats the signal. Under nohup it is ignored.
TEST(Signals, HangingUpNeverEndsARunUnsaved) {
  TrainFolder f;
  RunResult r = train_while(f, long_run + std::vector<std::string>{"--out", "run"}, [&](const RunningProcess& process) {
    f.wait_for_rows(process, "run", 5);
    process.stop();
    kill(process, SIGHUP);
    process.resume();
    int sent = 0;
    process.wait("the end", [&] { return kill(process, sent++ % 2 ? SIGHUP : SIGPIPE), process.ended(); });
  });
  // 128 + the signal if it comes between the end of the run and the end of the process.
  EXPECT_TRUE(r.code == 130 || r.code == 128 + SIGHUP || r.code == 128 + SIGPIPE) << r.code << r.err;
  EXPECT_NE(r.err.find("interrupted; saved at step"), std::string::npos) << r.err;
  EXPECT_FALSE(f.checkpoints("run").empty());
  auto old = signal(SIGHUP, SIG_IGN);  // in the child too
  r = train_while(f, {"--resume", "run", "--stop-after", "2000"}, [&](const RunningProcess& process) {
    f.wait_for_rows(process, "run", 20);
    kill(process, SIGHUP);
  });
  signal(SIGHUP, old);
  EXPECT_EQ(r.code, 0) << r.err;
}

// The reader of standard output ends early, as in `crest train 2>&1 | head`.
TEST(Signals, AClosedPipeSaves) {
  TrainFolder f;
  std::string command = "cd '" + f.path().string() + "' && CREST_CACHE=cache '" + crest_binary() +
                        "' train --data data --model tiny.toml --batch 2 --threads 1 --out run --steps " +
                        std::string(endless) + " --val-every 1 --save-every 0 2>&1 | head -n 20 > head.txt";
  EXPECT_EQ(std::system(command.c_str()), 0);
  ASSERT_EQ(f.checkpoints("run").size(), 1u);
  EXPECT_EQ(std::stoi(f.checkpoints("run").back().substr(5)), f.log("run").back()["step"]);
}

TEST(LostData, SavesAndSaysSo) {
  for (const char* ranks : {"1", "2"}) {
    SCOPED_TRACE(ranks);
    TrainFolder f;
    auto flags = std::vector<std::string>{"--data-parallel", ranks,        "--threads",    ranks,      "--steps",
                                          endless,           "--schedule", "constant",     "--warmup", "4",
                                          "--val-every",     "0",          "--save-every", "0"} +
                 std::vector<std::string>{"--data", "data", "--model", "tiny.toml", "--batch", "2"};
    std::string shard, bytes;
    for (auto& e : std::filesystem::directory_iterator(f.path() / "data"))
      if (std::string n = e.path().filename(); n.starts_with("train-") && n.ends_with(".bin")) shard = "data/" + n;
    bytes = f.read(shard);
    RunResult r = train_while(f, flags + std::vector<std::string>{"--out", "run"}, [&](const RunningProcess& process) {
      f.wait_for_rows(process, "run", 20);
      std::filesystem::resize_file(f.path() / shard, 1100);  // the disk behind it is gone
    });
    EXPECT_EQ(r.code, 1) << r.err;
    EXPECT_TRUE(contains(r.err, shard.substr(5))) << r.err;
    EXPECT_TRUE(contains(r.err, "The run is saved at step ")) << r.err;
    EXPECT_TRUE(contains(r.err, "(data could not be read)")) << r.err;
    ASSERT_EQ(f.checkpoints("run").size(), 1u);
    int step = std::stoi(f.checkpoints("run").back().substr(5));
    EXPECT_EQ(step, f.log("run").back()["step"]);
    f.write(shard, bytes);
    ASSERT_EQ(f.resume("run", {"--stop-after", "20"}).code, 0);
    std::vector<std::string> straight = {"train", "--out", "straight", "--stop-after", std::to_string(step + 20)};
    ASSERT_EQ(run_crest(straight + flags, f.options()).code, 0);
    EXPECT_TRUE(f.last_state("run") == f.last_state("straight"));
  }
}

TEST(LastWords, NameTheReasonTheStepsAndTimesThatMultiplyOut) {
  TrainFolder f;
  RunResult r = f.train("run", 40, {"--val-every", "30", "--stop-after", "12", "--json"});
  ASSERT_EQ(r.code, 0) << r.err;
  EXPECT_TRUE(contains(r.err, "stopped; saved at step 12 of 40 (--stop-after 12): loss ")) << r.err;
  EXPECT_TRUE(contains(r.err, "(step 12), validation ") && contains(r.err, "(step 0)")) << r.err;
  EXPECT_TRUE(contains(r.err, "crest train --resume run")) << r.err;
  EXPECT_EQ(r.json()["ended"], "stop_after");
  EXPECT_EQ(r.json()["steps"], 12);
  EXPECT_EQ(r.json()["val_step"], 0);
  EXPECT_TRUE(contains(r.err, "validation every 30 steps (")) << r.err;
  EXPECT_TRUE(contains(r.err, "batch")) << r.err;
  double whole = 0, n = 0, each = 0, steps = 0;
  size_t at = r.err.find(" s: 12 steps x ");
  ASSERT_NE(at, std::string::npos) << r.err;
  std::string line = r.err.substr(r.err.rfind('\n', at) + 1);
  ASSERT_EQ(std::sscanf(line.c_str(), "%lf s: %lf steps x %lf ms = %lf s", &whole, &n, &each, &steps), 4) << line;
  EXPECT_NEAR(n * each / 1e3, steps, 0.011);
  double sum = steps;
  for (const char* part : {"validation ", "saving ", "the rest "})
    if (size_t p = line.find(part); p < line.find('\n')) sum += std::atof(line.c_str() + p + std::strlen(part));
  EXPECT_NEAR(sum, whole, 0.04) << line;
  r = f.resume("run");
  EXPECT_TRUE(contains(r.err, "done at step 40 of 40: loss ")) << r.err;
  r = f.train("timed", 1000000, {"--max-seconds", "0.5"});
  EXPECT_TRUE(contains(r.err, "(--max-seconds 0.5 reached)")) << r.err;
}

TEST(LastWords, TheHeaderIsPrintedWhenIntervalsAreKnown) {
  TrainFolder f;
  RunResult r = run_crest({"train", "--data", "data", "--model", "tiny.toml", "--batch", "2", "--threads", "1",
                           "--max-seconds", "1", "--out", "run"},
                          f.options());
  ASSERT_EQ(r.code, 0) << r.err;
  std::string config = f.read("run/config.toml");
  auto setting = [&](const std::string& key) {
    size_t at = config.find("\n" + key + " = ");
    return at == std::string::npos
               ? "?"
               : config.substr(at + key.size() + 4, config.find('\n', at + 1) - at - key.size() - 4);
  };
  EXPECT_TRUE(contains(r.err, "schedule " + setting("steps") + " steps")) << r.err;
  auto every = [&](const char* key) {
    std::string n = setting(key);
    return n == "1" ? "every step" : "every " + n + " steps";
  };
  EXPECT_TRUE(contains(r.err, "validation " + every("val_every"))) << r.err << config;
  EXPECT_TRUE(contains(r.err, "checkpoint " + every("save_every"))) << r.err << config;
  EXPECT_FALSE(contains(r.err, "every 100 ")) << "what 1000 steps would have";
}

// Weights of 3e38 become infinite in a step with finite gradients.
TEST(NotFinite, TheLastFiniteCheckpointIsNeverRemovedNorPassedOver) {
  TrainFolder f;
  ASSERT_EQ(f.train("run", 4, {"--val-every", "0", "--precision", "fp32"}).code, 0);
  std::string good = f.last_state("run");
  RunResult r = f.resume("run", {"--steps", "5", "--lr", "3e38", "--min-lr", "0", "--schedule", "constant", "--warmup",
                                 "0", "--clip", "0", "--keep", "1", "--weight-decay", "100"});
  ASSERT_EQ(r.code, 0) << r.err;
  EXPECT_EQ(f.checkpoints("run"), (std::vector<std::string>{"step-000004", "step-000005"}));
  EXPECT_TRUE(contains(r.err, "the last finite checkpoint, step 4")) << r.err;
  EXPECT_EQ(nlohmann::json::parse(f.read("run/checkpoints/step-000005/state.json"))["finite_weights"], false);
  r = run_crest({"eval", "--run", "run"}, f.options());
  EXPECT_EQ(r.code, 0) << r.err;
  EXPECT_TRUE(contains(r.err, "contain NaN or infinity") && contains(r.err, "step-000004 instead")) << r.err;
  r = f.resume("run", {"--steps", "6", "--lr", "1e-3", "--keep", "1"});
  ASSERT_EQ(r.code, 0) << r.err;
  EXPECT_EQ(f.checkpoints("run"), std::vector<std::string>{"step-000006"});
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
  // One step takes seconds on one thread, on any machine.
  std::vector<std::string> flags = {"--data", "data", "--model",     "nano", "--batch",     "192", "--steps",   "50",
                                    "--out",  "run",  "--precision", "fp32", "--val-every", "0",   "--threads", "1"};
  RunResult r = train_while(f, flags, [&](const RunningProcess& process) {
    process.wait("the run's folder", [&] { return f.exists("run/log.jsonl"); });
    double before = process.cpu_seconds();
    process.wait("the first step", [&] { return process.cpu_seconds() > before + 0.3; });
    // Wait until a second signal is no longer a repetition of the first request, but still in the
    // same step.
    process.wait("the end", [&] { return kill(process, SIGINT), process.ended(); });
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
  // This learning rate ruins the weights in one step: every later gradient is NaN or infinite. With
  // a checkpoint after every step, the good one would be lost if saving alone removed old ones.
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
  // The scale falls from 1e30 until gradients of about 0.1 fit below 65504: about 80 halvings.
  EXPECT_GT(skipped, 60);
  EXPECT_LT(skipped, 110);
  auto state = nlohmann::json::parse(f.read("run/checkpoints/step-000140/state.json"))["state"];
  EXPECT_EQ(state["skipped"], skipped);
  EXPECT_EQ(state["adam_step"], 140 - skipped);
  EXPECT_EQ(f.checkpoints("run").size(), 2u) << "old checkpoints go once a step has succeeded";
}

// All writes of the process fail, including standard error. So tests/train/run_faults.cpp checks
// the message.
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
