// crest train and bench as several processes: the same bits as virtual ranks, one run, and nothing
// left behind when a rank is lost.
#include "cli/ranks.h"

#include "comm/socket.h"
#include "core/timer.h"

namespace crest::test {

namespace {

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

// Three axes at once.
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

TEST(Ranks, DieWithTheirLauncher) {
  NEEDS_RANKS();
  TrainFolder f;
  RunResult r = disturb(f, {}, [](const RunningProcess& launcher, auto&) { kill(launcher, SIGKILL); });
  EXPECT_EQ(r.code, 128 + SIGKILL);
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

}  // namespace crest::test
