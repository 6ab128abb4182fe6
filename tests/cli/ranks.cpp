// crest train and bench as several processes: the same bits as virtual ranks, one run, and nothing
// left behind when a rank is lost.
#include "cli/ranks.h"

#include "comm/socket.h"
#include "core/sha256.h"
#include "core/timer.h"
#include "data/shards.h"

namespace crest::test {

namespace {

std::string weights_and_moments(const TrainFolder& f, const std::string& run, const std::string& checkpoint) {
  std::string folder = run + "/checkpoints/" + checkpoint + "/";
  std::string bytes = f.read(folder + "model.safetensors") + f.read(folder + "optimizer.safetensors");
  EXPECT_GT(bytes.size(), 1000u) << folder;
  return sha256_hex(bytes.data(), bytes.size());
}

// Starts `flags` with two long-running ranks, and calls `act` after some steps. After the end of
// the launcher no process may be left.
RunResult disturb(const TrainFolder& f, const Flags& flags,
                  const std::function<void(const RunningProcess& launcher, const std::vector<pid_t>& ranks)>& act) {
  std::vector<pid_t> ranks;
  int port = 0;
  RunOptions options = f.options();
  options.while_running = [&](const RunningProcess& launcher) {
    bool begun = f.wait_for_rows(launcher, "run", 5);
    ranks = children_of(launcher);
    if (!ranks.empty()) port = port_in_environment_of(ranks[0]);
    if (begun && ranks.size() == 2)
      act(launcher, ranks);
    else
      kill(launcher, SIGKILL);
  };
  Flags all = {"train", "--data",      "data",    "--model",      "tiny.toml", "--batch",    "2",
               "--out", "run",         "--steps", endless,        "--threads", "2",          "--ranks",
               "2",     "--val-every", "0",       "--save-every", "0",         "--schedule", "constant"};
  RunResult r = run_crest(all + flags, options);
  EXPECT_EQ(ranks.size(), 2u);
  expect_nothing_left(ranks, port);
  return r;
}

// Two processes started by another launcher: flags and result of each.
std::pair<RunResult, RunResult> launched(const TrainFolder& f, const Flags& first, const Flags& second,
                                         const std::vector<std::pair<std::string, std::string>>& more = {},
                                         const std::vector<std::pair<std::string, std::string>>& of_second = {}) {
  std::string port = free_port();
  auto run = [&](int rank, const Flags& flags) {
    RunOptions o = f.options();
    for (auto& v : rank_variables(rank, port)) o.environment.push_back(v);
    for (auto& v : more) o.environment.push_back(v);
    if (rank == 1) o.environment.insert(o.environment.end(), of_second.begin(), of_second.end());
    return run_crest(Flags{"train", "--data", "data", "--model", "tiny.toml", "--out", "run", "--threads", "2"} + flags,
                     o);
  };
  std::pair<RunResult, RunResult> results;
  std::thread other([&] { results.second = run(1, second); });
  results.first = run(0, first);
  other.join();
  return results;
}

}  // namespace

TEST(Ranks, ProcessesHaveTheBitsOfVirtualRanks) {
  NEEDS_RANKS();
  TrainFolder f;
  for (const Flags& flags :
       std::vector<Flags>{{"--precision", "fp32", "--dropout", "0.1"},
                          {"--precision", "bf16", "--grad-accumulation", "2", "--optimizer", "adamw-8bit"}}) {
    SCOPED_TRACE(flags[1]);
    Flags with = flags + Flags{"--threads",       "2", "--val-every",  "3", "--overwrite", "--sample-every", "4",
                               "--sample-tokens", "4", "--save-every", "3"};
    RunResult threads = f.train("threads", 6, with + Flags{"--data-parallel", "2"});
    ASSERT_EQ(threads.code, 0) << threads.err;
    RunResult processes = f.train("processes", 6, with + Flags{"--ranks", "2", "--json"});
    ASSERT_EQ(processes.code, 0) << processes.err;
    EXPECT_EQ(f.checkpoints("processes"), f.checkpoints("threads"));
    EXPECT_EQ(f.checkpoints("processes").size(), 2u);
    EXPECT_TRUE(f.last_state("processes") == f.last_state("threads")) << "weights, moments or position differ";
    EXPECT_EQ(f.timeless_log("processes"), f.timeless_log("threads"));
    EXPECT_EQ(f.read("processes/samples.txt"), f.read("threads/samples.txt"));
    EXPECT_EQ(processes.json()["step"], 6) << "one document";
    EXPECT_TRUE(contains(processes.err, "x 2 ranks")) << processes.err;
    EXPECT_EQ(processes.err.find("device "), processes.err.rfind("device ")) << "rank 0 speaks\n" << processes.err;
  }
}

// Every --reduce and --shard gives the same weights and moments, also when a run continues with
// another setting.
TEST(Ranks, ReductionsAndSharesDoNotChangeBits) {
  NEEDS_RANKS();
  TrainFolder f;
  Flags flags = {"--precision", "bf16", "--threads", "2", "--val-every", "0", "--ranks", "2"};
  ASSERT_EQ(f.train("flat", 4, flags).code, 0);
  std::string expected = weights_and_moments(f, "flat", "step-000004");
  for (const Flags& how : std::vector<Flags>{
           {"--reduce", "bucket", "--bucket", "20kB"},
           {"--shard", "optimizer"},
           {"--offload-piece", "10kB", "--offload", "optimizer"},
           {"--bucket", "30kB", "--shard", "gradients", "--offload", "optimizer", "--offload-piece", "10kB"},
           {"--shard", "weights", "--bucket", "20kB", "--sample-every", "2", "--sample-tokens", "3", "--check-ranks",
            "2"}}) {
    SCOPED_TRACE(how[1]);
    RunResult r = f.train(how[1], 4, flags + how);
    ASSERT_EQ(r.code, 0) << r.err;
    EXPECT_EQ(weights_and_moments(f, how[1], "step-000004"), expected);
  }
  EXPECT_FALSE(f.read("weights/samples.txt").empty());
  ASSERT_EQ(f.train("cut", 4, flags + Flags{"--shard", "optimizer", "--stop-after", "2"}).code, 0);
  ASSERT_EQ(f.resume("cut", {"--shard", "none", "--stop-after", "1", "--offload", "optimizer"}).code, 0);
  ASSERT_EQ(f.resume("cut", {"--shard", "optimizer", "--offload", "none"}).code, 0);
  EXPECT_EQ(weights_and_moments(f, "cut", "step-000004"), expected);
}

// The data has no tokenizer. Rank 0 has the model's, and the other ranks gather weights with it.
TEST(Ranks, SampleWithTheTokenizerOfTheModel) {
  NEEDS_RANKS();
  TrainFolder f;
  ASSERT_EQ(f.train("base", 1, {"--val-every", "0"}).code, 0);
  for (const char* name : {"meta.json", "tokenizer.json"}) std::filesystem::remove(f.path() / "data" / name);
  const Flags flags = {"--init", "base", "--sample-every", "1", "--sample-tokens", "4", "--val-every", "0"};
  for (const Flags& ranks : std::vector<Flags>{{"--data-parallel", "2"}, {"--ranks", "2"}}) {
    RunResult r = f.train(ranks[0].substr(2), 1, flags + ranks + Flags{"--shard", "weights", "--threads", "2"});
    ASSERT_EQ(r.code, 0) << r.err;
  }
  EXPECT_FALSE(f.read("ranks/samples.txt").empty());
  EXPECT_EQ(f.read("ranks/samples.txt"), f.read("data-parallel/samples.txt"));
}

TEST(Ranks, SharesThatCannotBeAreRefused) {
  TrainFolder f;
  RunResult factored = f.train("run", 1, {"--ranks", "2", "--shard", "optimizer", "--optimizer", "adafactor"});
  EXPECT_EQ(factored.code, 2);
  EXPECT_TRUE(contains(error_of(factored), "--optimizer adafactor updates tensors one by one")) << factored.err;
  RunResult each = f.train("run", 1, {"--ranks", "2", "--shard", "optimizer", "--reduce", "each"});
  EXPECT_EQ(each.code, 2);
  EXPECT_TRUE(contains(error_of(each), "--reduce flat")) << each.err;
  RunResult bucket = f.train("run", 1, {"--ranks", "2", "--reduce", "bucket", "--bucket", "0"});
  EXPECT_EQ(bucket.code, 2);
  EXPECT_TRUE(contains(error_of(bucket), "--bucket")) << bucket.err;
}

TEST(Ranks, TwoRanksAreTwoMicroSteps) {
  NEEDS_RANKS();
  TrainFolder f;
  Flags flags = {"--precision", "fp32", "--val-every", "0"};
  ASSERT_EQ(f.train("one", 8, flags + Flags{"--grad-accumulation", "2"}).code, 0);
  RunResult r = f.train("two", 8, flags + Flags{"--ranks", "2", "--threads", "2"});
  ASSERT_EQ(r.code, 0) << r.err;
  auto one = f.log("one"), two = f.log("two");
  ASSERT_EQ(one.size(), two.size());
  for (size_t i = 0; i < one.size(); ++i)
    EXPECT_NEAR(two[i]["loss"], one[i]["loss"], 1e-5 * one[i]["loss"].get<double>()) << i;
}

TEST(Ranks, AreOneRunInTheStore) {
  NEEDS_RANKS();
  TrainFolder f;
  ASSERT_EQ(f.train("run", 3, {"--ranks", "2", "--threads", "2"}).code, 0);
  auto runs = run_crest({"runs", "list", "--json"}, f.options()).json();
  ASSERT_EQ(runs.size(), 1u);
  EXPECT_EQ(runs[0]["status"], "done");
  auto shown = run_crest({"runs", "show", "1", "--json"}, f.options()).json();
  EXPECT_EQ(shown["recipe"]["ranks"], 2);
}

// Text, a folder with a free name, and no flags but --ranks.
TEST(Ranks, StartFromATextFile) {
  NEEDS_RANKS();
  TrainFolder f;
  Flags flags = {"train", "text.txt", "--model", "tiny.toml", "--steps", "2", "--ranks", "2", "--batch", "2"};
  for (const char* folder : {"runs/text", "runs/text-2"}) {
    RunResult r = run_crest(flags, f.options());
    EXPECT_EQ(r.code, 0) << r.err;
    EXPECT_TRUE(f.exists(folder));
  }
  EXPECT_FALSE(f.exists("runs/text-3"));
}

TEST(Ranks, AnotherNumberOfThemContinuesTheRun) {
  NEEDS_RANKS();
  TrainFolder f;
  Flags flags = {"--precision", "fp32", "--threads", "2", "--val-every", "0", "--batch", "1", "--lr", "1e-3"};
  ASSERT_EQ(f.train("straight", 8, flags + Flags{"--ranks", "2", "--grad-accumulation", "2"}).code, 0);
  ASSERT_EQ(f.train("run", 8, flags + Flags{"--ranks", "2", "--grad-accumulation", "2", "--stop-after", "3"}).code, 0);
  RunResult none = f.resume("run", {"--ranks", "3"});
  EXPECT_EQ(none.code, 2) << none.err;
  EXPECT_TRUE(contains(none.err, "the run has 4 sequences per step, which 3 ranks with --batch 1 cannot share equally"))
      << none.err;
  expect_one_error(none);
  RunResult one = f.resume("run", {"--ranks", "1", "--stop-after", "2"});
  ASSERT_EQ(one.code, 0) << one.err;
  EXPECT_TRUE(contains(one.err, "1 instead of 2 ranks, 4 micro steps instead of 2")) << one.err;
  RunResult four = f.resume("run", {"--ranks", "4", "--threads", "4"});
  ASSERT_EQ(four.code, 0) << four.err;
  auto straight = f.log("straight"), cut = f.log("run");
  ASSERT_EQ(straight.size(), cut.size());
  for (size_t i = 0; i < cut.size(); ++i) {
    EXPECT_EQ(cut[i]["step"], straight[i]["step"]);
    EXPECT_NEAR(cut[i]["loss"], straight[i]["loss"], 1e-5 * straight[i]["loss"].get<double>()) << i;
  }
  // The same number again: the bits of the run in one piece.
  ASSERT_EQ(f.train("again", 8, flags + Flags{"--ranks", "2", "--grad-accumulation", "2", "--stop-after", "3"}).code,
            0);
  ASSERT_EQ(f.resume("again").code, 0);
  EXPECT_EQ(weights_and_moments(f, "again", "step-000008"), weights_and_moments(f, "straight", "step-000008"));
}

// Begun by one rank, continued by two with shared layers, and the other way around.
TEST(Ranks, TensorRanksTrainAndContinueLikeOne) {
  NEEDS_RANKS();
  TrainFolder f;
  const Flags flags = {"--precision", "fp32", "--threads",      "2",          "--val-every",     "0",
                       "--lr",        "1e-3", "--model",        "llama-nano", "--seq",           "16",
                       "--batch",     "2",    "--sample-every", "2",          "--sample-tokens", "8"};
  const Flags tensor = {"--mesh", "tensor=2"}, one = {"--mesh", "data=1"};
  ASSERT_EQ(f.train("straight", 4, flags).code, 0);
  for (auto& [name, first, then] : {std::tuple{"in", one, tensor}, {"out", tensor, one}}) {
    RunResult begun = f.train(name, 4, flags + first + Flags{"--stop-after", "2"});
    ASSERT_EQ(begun.code, 0) << begun.err;
    RunResult ended = f.resume(name, then);
    ASSERT_EQ(ended.code, 0) << ended.err;
    auto straight = f.log("straight"), cut = f.log(name);
    ASSERT_EQ(straight.size(), cut.size());
    EXPECT_EQ(f.read(name + std::string("/samples.txt")), f.read("straight/samples.txt"));
    for (size_t i = 0; i < cut.size(); ++i)
      EXPECT_NEAR(cut[i]["loss"], straight[i]["loss"], 1e-5 * straight[i]["loss"].get<double>()) << name << " " << i;
  }
  // Two groups of two ranks each. Rank 0 chooses kernels for all after the groups are connected.
  RunResult grid =
      f.train("grid", 1,
              flags + Flags{"--mesh", "data=2,tensor=2", "--batch", "1", "--threads", "4", "--tensor-overlap", "rows"});
  ASSERT_EQ(grid.code, 0) << grid.err;
  EXPECT_NEAR(f.log("grid")[0]["loss"], f.log("straight")[0]["loss"],
              1e-5 * f.log("straight")[0]["loss"].get<double>());
}

// A tied embedding on both ends. Rank 0 writes the samples of one rank, and says why stages waited.
TEST(Ranks, StagesTrainAndSampleLikeOne) {
  NEEDS_RANKS();
  TrainFolder f;
  const Flags flags = {"--precision",    "fp32", "--val-every",     "0", "--lr",  "1e-3", "--grad-accumulation", "2",
                       "--sample-every", "6",    "--sample-tokens", "8", "--json"};
  ASSERT_EQ(f.train("straight", 6, flags + Flags{"--batch", "2"}).code, 0);
  const auto straight = f.log("straight");
  for (const char* shard : {"none", "gradients", "weights"}) {
    SCOPED_TRACE(shard);
    RunResult r = f.train(
        shard, 6, flags + Flags{"--mesh", "pipeline=2,data=2", "--shard", shard, "--batch", "1", "--threads", "4"});
    ASSERT_EQ(r.code, 0) << r.err;
    const auto stages = f.log(shard);
    ASSERT_EQ(stages.size(), straight.size());
    for (size_t i = 0; i < stages.size(); ++i)
      for (const char* key : {"loss", "grad_norm"})
        EXPECT_NEAR(stages[i][key], straight[i][key], 1e-5 * straight[i][key].get<double>()) << key << " " << i;
    EXPECT_EQ(f.read(shard + std::string("/samples.txt")), f.read("straight/samples.txt"));
    EXPECT_TRUE(contains(r.err, "bubble of the stages")) << r.err;
    const auto pipeline = r.json()["pipeline"];
    EXPECT_EQ(pipeline["runs"], 3);
    EXPECT_EQ(pipeline["stages"].size(), 2u);
    double sum = 0;
    for (const char* part :
         {"ideal_ms", "warm_up_ms", "drain_ms", "imbalance_ms", "transfers_ms", "other_ms", "rest_ms"})
      sum += pipeline[part].get<double>();
    EXPECT_NEAR(sum, pipeline["step_ms"].get<double>(), 1e-3 * sum);
    EXPECT_GT(pipeline["bubble"]["measured"].get<double>(), 0);
  }
}

// All axes at once.
TEST(Ranks, AMeshOfThreeAxesTrainsNano) {
  TrainFolder f;
  const Flags flags = {"--model", "nano", "--precision",         "fp32", "--seq",     "16", "--val-every", "0",
                       "--lr",    "1e-3", "--grad-accumulation", "2",    "--threads", "8"};
  ASSERT_EQ(f.train("one", 3, flags + Flags{"--batch", "2"}).code, 0);
  RunResult r =
      f.train("cube", 3, flags + Flags{"--mesh", "data=2,tensor=2,pipeline=2", "--data-parallel", "8", "--batch", "1"});
  ASSERT_EQ(r.code, 0) << r.err;
  const auto one = f.log("one"), cube = f.log("cube");
  ASSERT_EQ(cube.size(), one.size());
  for (size_t i = 0; i < cube.size(); ++i)
    EXPECT_NEAR(cube[i]["loss"], one[i]["loss"], 1e-5 * one[i]["loss"].get<double>()) << i;
}

TEST(Ranks, AMeshOfDataRanksIsTheirNumber) {
  NEEDS_RANKS();
  TrainFolder f;
  f.write("mesh.toml", "mesh = \"data=2\"\n");
  Flags flags = {"--precision", "fp32", "--threads", "2", "--val-every", "0", "--save-every", "2", "--stop-after", "2"};
  ASSERT_EQ(f.train("number", 4, flags + Flags{"--ranks", "2"}).code, 0);
  RunResult r = f.train("mesh", 4, flags + Flags{"--config", "mesh.toml"});
  ASSERT_EQ(r.code, 0) << r.err;
  EXPECT_EQ(weights_and_moments(f, "mesh", "step-000002"), weights_and_moments(f, "number", "step-000002"));
  const std::string config = f.read("mesh/config.toml");
  EXPECT_TRUE(contains(config, "ranks = 2\n")) << config;
  EXPECT_FALSE(contains(config, "mesh = ")) << config;
  RunResult one = f.resume("mesh", {"--mesh", "data=1"});
  ASSERT_EQ(one.code, 0) << one.err;
  EXPECT_TRUE(contains(one.err, "1 instead of 2 ranks, 2 micro steps instead of 1")) << one.err;
}

TEST(Ranks, CtrlCSavesOnce) {
  NEEDS_RANKS();
  TrainFolder f;
  RunResult r = disturb(f, {}, [](const RunningProcess& launcher, auto&) { kill(launcher, SIGINT); });
  EXPECT_EQ(r.code, 130) << r.err;
  EXPECT_TRUE(contains(r.err, "interrupted; saved at step ")) << r.err;
  EXPECT_FALSE(contains(r.err, "crest: error")) << r.err;
  ASSERT_EQ(f.checkpoints("run").size(), 1u);
  EXPECT_EQ(std::stoi(f.checkpoints("run").back().substr(5)), f.log("run").back()["step"]);
  EXPECT_EQ(f.resume("run", {"--stop-after", "1"}).code, 0) << "the checkpoint is whole";
}

// The reader of `crest train --json | head` ends early.
TEST(Ranks, AClosedPipeEndsAllAfterTheSameStep) {
  NEEDS_RANKS();
  TrainFolder f;
  std::string pipe = f / "pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  int reader = open(pipe.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  ASSERT_GE(reader, 0);
  RunOptions options = f.options();
  options.output = pipe;
  options.while_running = [&](const RunningProcess& launcher) {
    f.wait_for_rows(launcher, "run", 5);
    close(reader);
  };
  RunResult r = run_crest({"train", "--data", "data",        "--model", "tiny.toml",    "--batch", "2",
                           "--out", "run",    "--steps",     endless,   "--threads",    "2",       "--ranks",
                           "2",     "--json", "--val-every", "0",       "--save-every", "0"},
                          options);
  EXPECT_NE(r.code, 0);
  EXPECT_TRUE(contains(r.err, "interrupted; saved at step ") && contains(r.err, "(SIGPIPE)")) << r.err;
  ASSERT_EQ(f.checkpoints("run").size(), 1u);
  EXPECT_EQ(std::stoi(f.checkpoints("run").back().substr(5)), f.log("run").back()["step"]);
}

// All ranks start at once on few cores, so connections of ranks and watchdogs come in bursts.
TEST(Ranks, ManyStartAtOnce) {
  NEEDS_RANKS();
  TrainFolder f;
  for (const char* ranks : {"8", "16"}) {
    RunResult r = f.train(ranks, 2, {"--ranks", ranks, "--batch", "1", "--val-every", "0", "--threads", ranks});
    EXPECT_EQ(r.code, 0) << r.err;
    EXPECT_EQ(f.log_rows(ranks), 2u);
  }
}

// A signal to one rank other than the first ends all after the same step.
TEST(Ranks, ASignalToOneRankIsAgreedOn) {
  NEEDS_RANKS();
  TrainFolder f;
  RunResult r = disturb(f, {}, [](auto&, const std::vector<pid_t>& ranks) { kill(ranks[1], SIGTERM); });
  EXPECT_EQ(r.code, 130) << r.err;
  EXPECT_TRUE(contains(r.err, "interrupted; saved at step ") && contains(r.err, "(SIGTERM)")) << r.err;
  EXPECT_EQ(f.checkpoints("run").size(), 1u);
}

TEST(Ranks, TheTimeLimitIsRank0s) {
  NEEDS_RANKS();
  TrainFolder f;
  RunResult r = f.train(
      "run", 1, {"--ranks", "2", "--threads", "2", "--steps", endless, "--max-seconds", "0.5", "--val-every", "0"});
  EXPECT_EQ(r.code, 0) << r.err;
  EXPECT_TRUE(contains(r.err, "--max-seconds 0.5 reached")) << r.err;
  EXPECT_EQ(f.checkpoints("run").size(), 1u);
}

TEST(Ranks, LostDataSavesAndSaysSo) {
  NEEDS_RANKS();
  TrainFolder f;
  RunResult r = disturb(f, {}, [&](auto&, auto&) {
    for (auto& e : std::filesystem::directory_iterator(f.path() / "data"))
      if (std::string n = e.path().filename(); n.starts_with("train-") && n.ends_with(".bin"))
        std::filesystem::resize_file(e.path(), 1100);
  });
  EXPECT_EQ(r.code, 1) << r.err;
  EXPECT_TRUE(contains(r.err, "The run is saved at step ")) << r.err;
  EXPECT_EQ(f.checkpoints("run").size(), 1u);
  expect_one_error(r);
}

TEST(LostRanks, KilledEndsAllWithRankAndStep) {
  NEEDS_RANKS();
  const Flags data = {}, stages = {"--mesh", "pipeline=2", "--grad-accumulation", "2"};
  for (auto& [rank, flags] : {std::pair{size_t(0), data}, {size_t(1), data}, {size_t(1), stages}}) {
    SCOPED_TRACE(std::to_string(rank) + (flags.empty() ? "" : " of a pipeline"));
    TrainFolder f;
    Timer timer;
    const size_t killed = rank;
    RunResult r = disturb(f, flags, [&](auto&, const std::vector<pid_t>& ranks) {
      timer = {};
      kill(ranks[killed], SIGKILL);
    });
    EXPECT_LT(timer.seconds(), 5);
    EXPECT_EQ(r.code, 1) << r.err;
    EXPECT_TRUE(contains(r.err, "rank " + std::to_string(rank) + " was ended by signal 9")) << r.err;
    EXPECT_TRUE(contains(error_of(r), "step ")) << r.err;
    expect_one_error(r);
    auto runs = run_crest({"runs", "list", "--json"}, f.options()).json();
    ASSERT_EQ(runs.size(), 1u);
    if (rank == 1) {
      EXPECT_EQ(runs[0]["status"], "failed");
    }
  }
}

TEST(LostRanks, StoppedEndsAllWithinTheWatchdogsTime) {
  NEEDS_RANKS();
  TrainFolder f;
  RunResult r =
      disturb(f, {"--watchdog", "1.5"}, [&](auto&, const std::vector<pid_t>& ranks) { kill(ranks[1], SIGSTOP); });
  EXPECT_EQ(r.code, 1) << r.err;
  EXPECT_TRUE(contains(r.err, "rank 1 has not answered for 1.5 s")) << r.err;
  EXPECT_TRUE(contains(error_of(r), "step ")) << r.err;
  expect_one_error(r);
}

// Another launcher does not kill the stopped rank. The others end by their watchdogs.
TEST(LostRanks, StoppedUnderAnotherLauncher) {
  NEEDS_RANKS();
  TrainFolder f;
  Flags flags = {"--steps", endless, "--watchdog", "2", "--val-every", "0", "--batch", "2"};
  std::string port = free_port();
  RunResult first, second;
  auto options = [&](int rank) {
    RunOptions o = f.options();
    for (auto& v : rank_variables(rank, port)) o.environment.push_back(v);
    return o;
  };
  Flags all = Flags{"train", "--data", "data", "--model", "tiny.toml", "--out", "run", "--threads", "2"} + flags;
  RunOptions stopped = options(1);
  std::thread other([&] {
    stopped.while_running = [&](const RunningProcess& process) {
      f.wait_for_rows(process, "run", 5);
      kill(process, SIGSTOP);
      wait_until([&] { return first.code >= 0; }, 60);
      kill(process, SIGKILL);
    };
    second = run_crest(all, stopped);
  });
  first = run_crest(all, options(0));
  other.join();
  EXPECT_EQ(first.code, 1);
  EXPECT_TRUE(contains(first.err, "rank 1 has not answered for 2 s")) << first.err;
  expect_one_error(first);
}

// The allocation of its memory is refused.
TEST(LostRanks, OutOfMemoryEndsAll) {
  NEEDS_RANKS();
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the sanitizers have their own operator new";
#endif
  TrainFolder f;
  Flags flags = {"--steps", "3", "--batch", "2"};
  auto [first, second] = launched(f, flags, flags, {},
                                  {{"LD_PRELOAD", CREST_FAIL_ALLOCATION},
                                   {"GOMP_SPINCOUNT", "4000"},
                                   {"CREST_FAIL_LARGE", "200000"},
                                   {"CREST_FAIL_ALLOCATION", "0+"}});
  EXPECT_EQ(second.code, 3) << second.err;
  EXPECT_TRUE(contains(second.err, "out of memory")) << second.err;
  EXPECT_EQ(first.code, 1) << first.err;
  EXPECT_TRUE(contains(first.err, "rank 1 is gone")) << first.err;
  expect_one_error(first);
}

TEST(Ranks, DieWithTheirLauncher) {
  NEEDS_RANKS();
  TrainFolder f;
  RunResult r = disturb(f, {}, [](const RunningProcess& launcher, auto&) { kill(launcher, SIGKILL); });
  EXPECT_EQ(r.code, 128 + SIGKILL);
}

TEST(Ranks, OfAnotherLauncherTrainTogether) {
  NEEDS_RANKS();
  TrainFolder f;
  Flags model = {"--batch", "1", "--precision", "fp32", "--context", "256"};
  // Rank 0 has memory for sequences of 64 tokens, the other rank for more. All use rank 0's length.
  RunResult plan = run_crest(
      Flags{"plan", "--json", "--model", "tiny.toml", "--ranks", "2", "--threads", "2", "--seq", "64"} + model,
      f.options());
  const auto planned = plan.json()["memory"]["planned_bytes"].get<int64_t>();
  Flags flags = model + Flags{"--steps", "3"};
  auto [first, second] = launched(f, flags + Flags{"--json", "--memory-limit", std::to_string(2 * planned)}, flags,
                                  {{"CREST_SECRET", "0123456789abcdef"}});
  EXPECT_EQ(first.code, 0) << first.err;
  EXPECT_EQ(second.code, 0) << second.err;
  EXPECT_EQ(first.json()["step"], 3);
  EXPECT_EQ(second.out + second.err, "") << "only rank 0 speaks";
  EXPECT_TRUE(contains(f.read("run/config.toml"), "\nseq = 64\n")) << f.read("run/config.toml");
  EXPECT_TRUE(contains(first.err, "note     sequences of 64 tokens")) << first.err;
  RunResult threads = f.train("threads", 3, model + Flags{"--seq", "64", "--data-parallel", "2", "--threads", "2"});
  ASSERT_EQ(threads.code, 0) << threads.err;
  EXPECT_EQ(weights_and_moments(f, "run", "step-000003"), weights_and_moments(f, "threads", "step-000003"));
}

// With srun's variables, with and without --ntasks-per-node, on one node and on two. The result has
// the same bits as ranks started by Crest.
TEST(Ranks, OfSrunTrainTogether) {
  NEEDS_RANKS();
  TrainFolder f;
  const Flags train = {"train", "--data",      "data", "--model",     "tiny.toml", "--batch",
                       "2",     "--out",       "srun", "--steps",     "3",         "--precision",
                       "fp32",  "--val-every", "0",    "--overwrite", "--json"};
  ASSERT_EQ(f.train("own", 3, {"--ranks", "2", "--threads", "2", "--precision", "fp32", "--val-every", "0"}).code, 0);
  std::string expected = weights_and_moments(f, "own", "step-000003");
  const std::string srun = std::string(CREST_TEST_DIR) + "/tools/srun";
  for (const Flags& how :
       std::vector<Flags>{{"-n", "2"}, {"-n", "2", "--ntasks-per-node=2", "--export=ALL"}, {"-n", "2", "-N", "2"}}) {
    SCOPED_TRACE(how.back());
    RunOptions o = f.options();
    o.launcher = Flags{srun} + how;
    o.environment.push_back({"MASTER_PORT", free_port()});
    o.environment.push_back({"CREST_SECRET", "0123456789abcdef"});
    if (how.size() > 3 && how[2] == "-N") o.environment.push_back({"MASTER_ADDR", "127.0.0.1"});  // node01 is not real
    // Ranks of a node share its threads. Other numbers of threads may give other bits.
    const bool nodes = how.size() > 3 && how[2] == "-N";
    RunResult r = run_crest(train + Flags{"--threads", nodes ? "1" : "2"}, o);
    ASSERT_EQ(r.code, 0) << r.err;
    EXPECT_EQ(r.json()["step"], 3) << "one document";
    EXPECT_TRUE(contains(r.err, "x 2 ranks")) << r.err;
    EXPECT_EQ(weights_and_moments(f, "srun", "step-000003"), expected);
  }
  RunOptions o = f.options();
  o.launcher = {srun, "-n", "2"};
  o.environment.push_back({"MASTER_PORT", free_port()});
  RunResult r = run_crest(train + Flags{"--ranks", "3"}, o);
  EXPECT_EQ(r.code, 2);
  EXPECT_TRUE(contains(r.err, "--ranks 3, but srun started 2 processes")) << r.err;
}

// One is left of a killed run.
TEST(Ranks, ShareASecretInAFile) {
  NEEDS_RANKS();
  TrainFolder f;
  f.write("secret", "of a run that was killed");
  ASSERT_EQ(chmod((f / "secret").c_str(), 0600), 0);
  Flags flags = {"--steps", "3", "--batch", "2"};
  auto [first, second] = launched(f, flags, flags, {{"CREST_SECRET_FILE", f / "secret"}});
  EXPECT_EQ(first.code, 0) << first.err;
  EXPECT_EQ(second.code, 0) << second.err;
  EXPECT_FALSE(f.exists("secret")) << "removed at the end";
}

// On the port of a run: silence, garbage, a huge frame.
TEST(Ranks, GoOnAmongStrangers) {
  NEEDS_RANKS();
  TrainFolder f;
  RunResult r = disturb(f, {}, [&](const RunningProcess& launcher, const std::vector<pid_t>& ranks) {
    int port = port_in_environment_of(ranks[0]);
    std::vector<Socket> strangers;
    for (const std::string& text :
         {std::string(), std::string("GET / HTTP/1.0\r\n\r\n"), std::string("\xff\xff\xff\x7fJ", 5),
          std::string("\0\0\x0f\0J\xff\xff\0\0", 9) + std::string(60'000, 'x')}) {
      strangers.push_back(connect_to("127.0.0.1", port, after(10)).socket);
      ASSERT_TRUE(strangers.back().is_open());
      send_all(strangers.back(), text);
      if (text.empty()) continue;
      timeval limit{30, 0};
      setsockopt(strangers.back().fd(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
      char byte = 0;
      EXPECT_TRUE(recv(strangers.back().fd(), &byte, 1, 0) == 0 || errno == ECONNRESET) << "closed at once";
    }
    size_t rows = f.log_rows("run");
    f.wait_for_rows(launcher, "run", rows + 5);
    kill(launcher, SIGINT);
  });
  EXPECT_EQ(r.code, 130) << r.err;
  EXPECT_FALSE(contains(r.err, "crest: error")) << r.err;
}

TEST(Ranks, ThatWouldComputeSomethingElseAreNamed) {
  NEEDS_RANKS();
  TrainFolder f;
  ASSERT_EQ(f.train("run", 2, {"--save-every", "0"}).code, 0);
  std::string before = f.last_state("run") + f.read("run/config.toml");
  std::filesystem::copy(f.path() / "data", f.path() / "other");
  for (const char* name : {"meta.json", "tokenizer.json"})  // nothing but shards
    for (const char* folder : {"data", "other"}) std::filesystem::remove(f.path() / folder / name);
  auto val = f.path() / "other/val-000000.bin";
  std::string shard = f.read("other/val-000000.bin");
  ShardHeader header = parse_shard_header({reinterpret_cast<const uint8_t*>(shard.data()), 1024}, shard.size(), "val");
  header.tokens -= 40;
  shard.resize(header.data_offset + header.tokens * 2);
  memcpy(shard.data() + 8, &header.tokens, 4);
  f.write("other/val-000000.bin", shard);
  struct Case {
    Flags flags;
    const char* said;
  };
  // Each of these would make rank 1 call other collectives than rank 0, or compute something else.
  for (auto& c : std::vector<Case>{{{"--check-ranks", "20"}, "rank 0 has 'check_ranks = 100', rank 1 has 'check_ranks"},
                                   {{"--disable-pass", "epilogues"}, "rank 1 has '"},
                                   {{"--data", "other"}, "rank 0 has 'split val: "}}) {
    SCOPED_TRACE(c.flags[0]);
    Flags flags = {"--steps", "3", "--batch", "2", "--overwrite"};
    auto [first, second] = launched(f, flags, flags + c.flags);
    EXPECT_EQ(first.code, 1) << first.err;
    EXPECT_NE(second.code, 0);
    EXPECT_TRUE(contains(first.err, "the ranks would not compute the same: rank 0 has '")) << first.err;
    EXPECT_TRUE(contains(first.err, c.said)) << first.err;
    expect_one_error(first);
    EXPECT_TRUE(f.last_state("run") + f.read("run/config.toml") == before) << "what was to be replaced is still there";
  }
}

TEST(Ranks, WithAnotherSecretAreNotLetIn) {
  NEEDS_RANKS();
  TrainFolder f;
  std::string port = free_port();
  auto options = [&](int rank, const std::string& secret) {
    RunOptions o = f.options();
    for (auto& v : rank_variables(rank, port)) o.environment.push_back(v);
    o.environment.push_back({"CREST_SECRET", secret});
    return o;
  };
  Flags all = {"train", "--data", "data", "--model", "tiny.toml", "--out", "run", "--steps", "2"};
  RunOptions first = options(0, "0123456789abcdef");
  RunResult second;
  first.while_running = [&](const RunningProcess& process) {
    second = run_crest(all, options(1, "0123456789abcdeF"));
    kill(process, SIGKILL);
  };
  run_crest(all, first);
  EXPECT_EQ(second.code, 2) << second.err;
  EXPECT_TRUE(contains(second.err, "rank 0 does not know the secret of this rank")) << second.err;
}

TEST(Ranks, NeedASecretWhereOthersCanReachThem) {
  NEEDS_RANKS();
  RunOptions o;
  o.environment = {{"RANK", "1"},
                   {"WORLD_SIZE", "2"},
                   {"LOCAL_RANK", "0"},
                   {"LOCAL_WORLD_SIZE", "1"},
                   {"MASTER_ADDR", "192.0.2.1"},
                   {"MASTER_PORT", "29512"}};
  Flags flags = {"train", "--data", "data"};
  expect_error(flags, 2, {"no secret is set", "export CREST_SECRET="}, o);
  o.environment.push_back({"CREST_SECRET", "short"});
  expect_error(flags, 2, {"CREST_SECRET has 5 characters"}, o);
}

}  // namespace crest::test
