// A run cut and continued ends bit for bit like an uncut one.
#include <fmt/format.h>

#include "cli/train_harness.h"

using namespace crest::test;

namespace {

struct Setting {
  const char* name;
  std::vector<std::string> flags;
};

void PrintTo(const Setting& s, std::ostream* out) { *out << s.name; }

const std::vector<Setting> settings = {
    {"Fp32", {"--precision", "fp32"}},
    {"Bf16", {"--precision", "bf16"}},
    {"Bf16Autocast", {"--precision", "bf16", "--policy", "autocast"}},
    {"Fp16", {"--precision", "fp16"}},
    {"Dropout", {"--precision", "fp32", "--dropout", "0.2"}},
    {"Accumulation",
     {"--precision", "bf16", "--grad-accumulation", "2", "--dropout", "0.1", "--lr-embedding", "0.01", "--lr-vectors",
      "0.002"}},
    {"TwoRanks", {"--precision", "fp32", "--data-parallel", "2", "--dropout", "0.1", "--threads", "2"}},
    {"Everything",
     {"--precision", "bf16", "--data-parallel", "2", "--grad-accumulation", "2", "--dropout", "0.1", "--threads", "2",
      "--attention", "naive", "--fusion", "off"}},
};

}  // namespace

class Resume : public testing::TestWithParam<Setting> {};

// The data has about 50 windows of 32 tokens: 24 steps of 2 to 8 samples cross at least one epoch
// edge in most settings (all with 4 or more samples a step).
TEST_P(Resume, IsBitwise) {
  TrainFolder f;
  constexpr int steps = 32;
  auto flags = GetParam().flags;
  flags.insert(flags.end(), {"--save-every", "0", "--val-every", "6", "--sample-every", "8", "--sample-tokens", "4"});
  RunResult straight = f.train("straight", steps, flags);
  ASSERT_EQ(straight.code, 0) << straight.err;
  // 1: only the first step; 6: at a validation; 27: near the end, after the edge of an epoch. The
  // cases below have other cuts.
  for (int cut : {1, 6, 27}) {
    SCOPED_TRACE(cut);
    std::string run = "cut" + std::to_string(cut);
    auto first = flags;
    first.insert(first.end(), {"--stop-after", std::to_string(cut)});
    ASSERT_EQ(f.train(run, steps, first).code, 0);
    ASSERT_EQ(f.checkpoints(run).size(), 1u);
    RunResult r = f.resume(run);
    ASSERT_EQ(r.code, 0) << r.err;
    EXPECT_TRUE(contains(r.err, "continued at step " + std::to_string(cut))) << r.err;
    EXPECT_TRUE(f.last_state(run) == f.last_state("straight")) << "weights, moments or position differ";
    EXPECT_EQ(f.timeless_log(run), f.timeless_log("straight"));
    EXPECT_EQ(f.read(run + "/samples.txt"), f.read("straight/samples.txt"));
  }
  // Many cuts in one run.
  auto first = flags;
  first.insert(first.end(), {"--stop-after", "5"});
  ASSERT_EQ(f.train("many", steps, first).code, 0);
  for (int i = 0; i < 6; ++i) ASSERT_EQ(f.resume("many", {"--stop-after", "5"}).code, 0);
  EXPECT_TRUE(f.last_state("many") == f.last_state("straight"));
  EXPECT_EQ(f.timeless_log("many"), f.timeless_log("straight"));
}

INSTANTIATE_TEST_SUITE_P(Settings, Resume, testing::ValuesIn(settings), [](auto& i) { return i.param.name; });

TEST(ResumeKilled, TwentyRandomKillsLoseNothing) {
  TrainFolder f;
  constexpr int steps = 600;
  std::vector<std::string> flags = {"--save-every", "25", "--keep", "2", "--precision", "bf16", "--val-every", "100"};
  RunResult straight = f.train("straight", steps, flags);
  ASSERT_EQ(straight.code, 0) << straight.err;
  // The kills are spread over the processor time of half a run. So they hit start, steps, saves and
  // removals on any machine under any load.
  int kills = 0, before = 0;
  for (int i = 0; kills < 20 && i < 200; ++i) {
    double life = straight.cpu_seconds * (0.02 + 0.5 * double(crest::random_bits(5, 6, uint64_t(i)) % 1000) / 1000);
    RunOptions o = f.options();
    o.while_running = [&](const RunningProcess& process) {
      wait_until([&] { return process.cpu_seconds() >= life || process.ended(); });
      kill(process, SIGKILL);
    };
    std::vector<std::string> a = {"train", "--resume", "run"};
    if (f.checkpoints("run").empty()) {
      a = {"train", "--data", "data",        "--model", "tiny.toml",           "--batch",   "2",
           "--out", "run",    "--overwrite", "--steps", std::to_string(steps), "--threads", "1"};
      a.insert(a.end(), flags.begin(), flags.end());
      // The remains of a kill in the first milliseconds are not yet a run.
      if (!f.exists("run/config.toml")) std::filesystem::remove_all(f.path() / "run");
    }
    RunResult r = run_crest(a, o);
    bool ended = r.code == 0;  // before its time was over
    if (!ended) {
      ASSERT_EQ(r.code, 128 + SIGKILL) << r.err;
      ++kills;
    }
    EXPECT_FALSE(contains(r.err, "damaged")) << r.err;
    auto saved = f.checkpoints("run");
    int newest = saved.empty() ? 0 : std::stoi(saved.back().substr(5));
    EXPECT_GE(newest, before) << "a checkpoint was lost";
    before = newest;
    if (ended) {  // start over: the remaining kills hit another run
      EXPECT_TRUE(f.last_state("run") == f.last_state("straight"));
      std::filesystem::remove_all(f.path() / "run");
      before = 0;
    }
  }
  EXPECT_EQ(kills, 20);
  if (!f.checkpoints("run").empty()) {
    RunResult r = f.resume("run");
    ASSERT_EQ(r.code, 0) << r.err;
    EXPECT_TRUE(f.last_state("run") == f.last_state("straight"));
    EXPECT_EQ(f.timeless_log("run"), f.timeless_log("straight"));
    EXPECT_EQ(f.checkpoints("run").size(), 2u);
  }
}

TEST(ResumeChanged, MoreStepsAreTrainedAndKept) {
  TrainFolder f;
  ASSERT_EQ(f.train("run", 10).code, 0);
  RunResult done = f.resume("run");
  EXPECT_EQ(done.code, 0);
  EXPECT_TRUE(contains(done.err, "the run is at step 10 of 10: nothing to do; give a larger --steps")) << done.err;
  ASSERT_EQ(f.resume("run", {"--steps", "30", "--stop-after", "5"}).code, 0);
  EXPECT_EQ(f.checkpoints("run").back(), "step-000015");
  // The new number of steps is the run's now.
  ASSERT_EQ(f.resume("run").code, 0);
  EXPECT_EQ(f.checkpoints("run").back(), "step-000030");
  EXPECT_EQ(f.log("run").back()["step"], 30);
  RunResult fewer = f.resume("run", {"--steps", "20"});
  EXPECT_EQ(fewer.code, 0);
  EXPECT_TRUE(contains(fewer.err, "the run is at step 30, past --steps 20: nothing to do")) << fewer.err;
  EXPECT_TRUE(contains(fewer.err, "done at step 30")) << fewer.err;
  EXPECT_FALSE(contains(fewer.err, "30 of 20")) << fewer.err;
}

// The run's file has --reduce flat, though the user never gave it. Shards of gradients need
// buckets.
TEST(ResumeChanged, ShardsAreChosenAnew) {
  TrainFolder f;
  ASSERT_EQ(f.train("run", 2, {"--data-parallel", "2"}).code, 0);
  ASSERT_TRUE(contains(f.read("run/config.toml"), "reduce = \"flat\""));
  int steps = 2;
  for (std::vector<std::string> flags : {std::vector<std::string>{"--shard", "gradients"},
                                         {"--shard", "optimizer", "--reduce", "flat"},
                                         {"--gather", "forward"},
                                         {"--shard", "weights"},
                                         {"--shard", "none"}}) {
    flags.insert(flags.end(), {"--steps", std::to_string(++steps)});
    RunResult r = f.resume("run", flags);
    EXPECT_EQ(r.code, 0) << flags[1] << ": " << r.err;
    EXPECT_TRUE(contains(r.err, "done at step " + std::to_string(steps))) << r.err;
  }
  RunResult both = f.resume("run", {"--shard", "weights", "--reduce", "flat", "--steps", "9"});
  EXPECT_EQ(both.code, 2);
  EXPECT_TRUE(contains(both.err, "--reduce: shares of gradients and weights travel in buckets")) << both.err;
}

TEST(ResumeChanged, WaitingForSavesIsKept) {
  TrainFolder f;
  RunResult r = f.train("run", 6, {"--save-every", "2", "--stop-after", "4", "--wait-for-saves", "--json"});
  ASSERT_EQ(r.code, 0) << r.err;
  ASSERT_TRUE(r.json()["saving_seconds"].is_number()) << r.out;
  EXPECT_LT(r.json()["saving_seconds"], r.json()["seconds"]) << r.out;
  EXPECT_TRUE(contains(f.read("run/config.toml"), "wait_for_saves"));
  ASSERT_EQ(f.resume("run").code, 0);
  EXPECT_EQ(f.checkpoints("run").back(), "step-000006");
}

// One line prints the parts of a run's time. Advice about a part repeats its figure.
TEST(RunTime, AdviceOnSavingAndValidationNamesTheirFigure) {
  TrainFolder f(20000);
  struct Case {
    const char *part, *advice;
    std::vector<std::string> flags;
  };
  for (auto& c : {Case{"saving", "raise --save-every", {"--save-every", "1", "--val-every", "0"}},
                  Case{"validation", "lower --val-batches", {"--val-every", "1", "--val-batches", "100"}}}) {
    RunResult r = f.train(c.part, 6, c.flags);
    ASSERT_EQ(r.code, 0) << r.err;
    std::string took = std::string(c.part) + " took ";
    size_t at = r.err.find(took);
    ASSERT_NE(at, std::string::npos) << r.err;
    std::string line = r.err.substr(at, r.err.find('\n', at) - at);
    EXPECT_TRUE(contains(line, c.advice)) << line;
    std::string figure = line.substr(took.size(), line.find(" (") - took.size());
    EXPECT_TRUE(contains(r.err, fmt::format(", {} {}", c.part, figure))) << r.err;
  }
}

TEST(ResumeChanged, RefusedWhereTheOrderOfTheDataWouldChange) {
  TrainFolder f;
  ASSERT_EQ(f.train("run", 4).code, 0);
  std::string before = f.last_state("run");
  auto refused = [&](std::vector<std::string> more, int code, const std::vector<std::string>& said) {
    std::vector<std::string> a = {"train", "--resume", "run"};
    a.insert(a.end(), more.begin(), more.end());
    expect_error(a, code, said, f.options());
  };
  refused({"--batch", "4"}, 2, {"2 samples per step, this recipe has 4"});
  refused({"--seq", "16"}, 2, {"the run has seq 32, but 16 was given"});
  refused({"--seed", "5"}, 2, {"the run has seed 1337"});
  refused({"--optimizer", "sgd"}, 2, {"the run has optimizer adamw"});
  refused({"--model", "nano"}, 2, {"the run has model", "nano", "Leave out --model"});
  refused({"--out", "other"}, 2, {"in its own folder"});
  EXPECT_TRUE(f.last_state("run") == before);
  // The same samples in another split continue the same run.
  EXPECT_EQ(f.resume("run", {"--batch", "1", "--grad-accumulation", "2", "--steps", "6"}).code, 0);
}

TEST(ResumeChanged, WhatChangesTheRunIsSaid) {
  TrainFolder f;
  ASSERT_EQ(f.train("run", 10, {"--val-every", "0", "--precision", "fp32"}).code, 0);
  // More steps stretch the schedule: the rate rises.
  RunResult r = f.resume("run", {"--steps", "40", "--stop-after", "1"});
  ASSERT_EQ(r.code, 0) << r.err;
  EXPECT_TRUE(contains(r.err, "the learning rate jumps up here: step 10 used")) << r.err;
  r = f.resume("run", {"--stop-after", "1"});
  EXPECT_FALSE(contains(r.err, "the learning rate jumps up")) << r.err;
  r = f.resume("run", {"--lr", "0.01", "--precision", "bf16", "--dropout", "0.1", "--stop-after", "1"});
  ASSERT_EQ(r.code, 0) << r.err;
  for (const char* said :
       {"note     --lr was ", "the run continues with 0.01", "the learning rate jumps up here",
        "--precision was fp32; the run continues with bf16", "--dropout was 0; the run continues with 0.1"})
    EXPECT_TRUE(contains(r.err, said)) << said << " in\n" << r.err;
  r = f.resume("run", {"--packing", "documents", "--stop-after", "1"});
  EXPECT_TRUE(r.code != 0 || contains(r.err, "--packing was stream; the run continues with documents")) << r.err;
  // Other text of the same length.
  std::string text = f.read("text.txt");
  std::swap(text[0], text[1]), std::swap(text[40], text[41]);
  f.write("text.txt", text);
  ASSERT_EQ(
      run_crest({"data", "prepare", "text.txt", "--tokenizer", "bytes", "--out", "data", "--overwrite"}, f.options())
          .code,
      0);
  r = f.resume("run", {"--stop-after", "1"});
  EXPECT_TRUE(contains(r.err, "it continues with different data")) << r.err;
}

TEST(ResumeChanged, EvalIsOfTheRunsTraining) {
  TrainFolder f;
  ASSERT_EQ(f.train("run", 4, {"--seq", "16"}).code, 0);
  RunResult r = run_crest({"eval", "--run", "run", "--json"}, f.options());
  ASSERT_EQ(r.code, 0) << r.err;
  EXPECT_EQ(r.json()["seq"], 16);
  EXPECT_EQ(r.json()["data"], f / "data");
  EXPECT_EQ(run_crest({"eval", "--run", "run", "--seq", "32", "--data", "data", "--json"}, f.options()).json()["seq"],
            32);
  std::filesystem::rename(f.path() / "data", f.path() / "moved");
  expect_error({"eval", "--run", "run"}, 2, {"training data no longer exists", "--data"}, f.options());
}

TEST(ResumeDamaged, FallsBackAndForgetsTheDroppedFuture) {
  TrainFolder f;
  std::vector<std::string> flags = {"--save-every", "4", "--keep", "0"};
  ASSERT_EQ(f.train("straight", 12, flags).code, 0);
  ASSERT_EQ(f.train("run", 12, flags).code, 0);
  for (const char* name : {"step-000008", "step-000012"}) {
    std::string file = std::string("run/checkpoints/") + name + "/model.safetensors", bytes = f.read(file);
    bytes[bytes.size() - 100] ^= 1;
    f.write(file, bytes);
  }
  RunResult r = f.resume("run", {"--stop-after", "1"});
  ASSERT_EQ(r.code, 0) << r.err;
  EXPECT_TRUE(contains(r.err, "step-000012/model.safetensors")) << r.err;
  EXPECT_TRUE(contains(r.err, "does not match its hash")) << r.err;
  EXPECT_TRUE(contains(r.err, "step-000004 instead")) << r.err;
  EXPECT_TRUE(contains(r.err, "2 damaged checkpoints of later steps set aside")) << r.err;
  EXPECT_EQ(f.checkpoints("run"), (std::vector<std::string>{"step-000004", "step-000005"}));
  ASSERT_EQ(f.resume("run").code, 0);
  EXPECT_TRUE(f.last_state("run") == f.last_state("straight"));
  EXPECT_EQ(f.timeless_log("run"), f.timeless_log("straight"));
}

TEST(ResumeDamaged, NothingValidIsAnError) {
  TrainFolder f;
  ASSERT_EQ(f.train("run", 4, {"--save-every", "2"}).code, 0);
  for (auto& name : f.checkpoints("run")) f.write("run/checkpoints/" + name + "/state.json", "{}");
  expect_error({"train", "--resume", "run"}, 1, {"every checkpoint of the run is damaged or", "--overwrite"},
               f.options());
  std::filesystem::remove_all(f.path() / "run/checkpoints");
  expect_error({"train", "--resume", "run"}, 1, {"no checkpoint to continue from"}, f.options());
}

TEST(ConfigToml, RepeatsTheRun) {
  TrainFolder f;
  const RunResult first = f.train("run", 8,
                                  {"--dropout", "0.1", "--grad-accumulation", "2", "--schedule", "wsd", "--seed", "7",
                                   "--decay-share", "0.5", "--decay-shape", "linear", "--lr-embedding", "0.02"});
  ASSERT_EQ(first.code, 0) << first.err;
  EXPECT_TRUE(contains(first.out + first.err, "in the last 50% (linear)")) << first.out << first.err;
  EXPECT_TRUE(contains(first.out + first.err, "embedding 0.02")) << first.out << first.err;
  std::string config = f.read("run/config.toml");
  for (const char* key :
       {"data = ", "model = ", "batch = 2", "seq = 32", "precision = \"", "steps = 8", "lr = ", "seed = 7",
        "warmup = ", "schedule = \"wsd\"", "decay_share = 0.5", "decay_shape = \"linear\"", "lr_embedding = 0.02"})
    EXPECT_TRUE(contains(config, key)) << key << " in\n" << config;
  f.write("tiny.toml", "preset = \"nano\"\n");  // the run keeps its own copy
  RunOptions o = f.options();
  RunResult r = run_crest({"train", "--config", "run/config.toml", "--out", "again"}, o);
  ASSERT_EQ(r.code, 0) << r.err;
  EXPECT_TRUE(f.last_state("again") == f.last_state("run"));
  EXPECT_EQ(f.timeless_log("again"), f.timeless_log("run"));
  // A moved run can still be continued.
  std::filesystem::rename(f.path() / "again", f.path() / "moved");
  EXPECT_EQ(f.resume("moved", {"--steps", "10"}).code, 0);
}

TEST(ConfigToml, RepeatsARunFittedToATime) {
  TrainFolder f;
  std::vector<std::string> a = {"train", "--data", "data", "--model", "tiny.toml", "--batch", "2", "--threads", "1"};
  auto with = a;
  with.insert(with.end(), {"--max-seconds", "1", "--out", "run"});
  RunResult r = run_crest(with, f.options());
  ASSERT_EQ(r.code, 0) << r.err;
  EXPECT_TRUE(contains(r.err, "fit into")) << r.err;
  EXPECT_LT(r.cpu_seconds, 5) << "of one thread: what else runs here does not count";
  auto steps = f.log("run").back()["step"].get<int64_t>();
  EXPECT_TRUE(contains(f.read("run/config.toml"), "steps = "));
  // The time limit may have ended the run before the fitted number of steps.
  r = run_crest({"train", "--config", "run/config.toml", "--out", "again", "--stop-after", std::to_string(steps)},
                f.options());
  ASSERT_EQ(r.code, 0) << r.err;
  auto name = f.checkpoints("run").back();
  ASSERT_EQ(f.checkpoints("again").back(), name);
  EXPECT_TRUE(f.read("again/checkpoints/" + name + "/model.safetensors") ==
              f.read("run/checkpoints/" + name + "/model.safetensors"));
}

// A run's folder may come from anybody. So Crest reports libraries named in it and does not open
// them.
TEST(ResumeLibraries, AreToldAndOpenedWhenGivenAgain) {
  TrainFolder f;
  std::filesystem::create_directories(f.path() / "libs");
  RunResult r = f.train("run", 2, {"--libraries", "libs", "--stop-after", "1"});
  ASSERT_EQ(r.code, 0) << r.err;
  EXPECT_TRUE(contains(f.read("run/config.toml"), "libraries = \"" + (f / "libs") + "\"")) << f.read("run/config.toml");
  std::filesystem::remove(f.path() / "libs");  // it would be an error to name it
  r = f.resume("run", {"--steps", "3"});
  EXPECT_EQ(r.code, 0) << r.err;
  EXPECT_TRUE(contains(r.err, "note: the run used --libraries=" + (f / "libs"))) << r.err;
  EXPECT_FALSE(contains(f.read("run/config.toml"), "libraries")) << f.read("run/config.toml");
  r = f.resume("run", {"--libraries", "data", "--steps", "4"});
  EXPECT_EQ(r.code, 0) << r.err;
  EXPECT_FALSE(contains(r.err, "note: the run used")) << r.err;
}
