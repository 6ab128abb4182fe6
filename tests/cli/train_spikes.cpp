// --on-spike rollback and --until-loss in a run of several processes, with and without ZeRO 1.
#include "cli/ranks.h"
#include "cli/train_harness.h"
#include "train/spiked_data.h"

using namespace crest::test;

TEST(SpikesOfRanks, GoBackTogetherLikeThreads) {
  NEEDS_RANKS();
  TrainFolder f;
  prepare_spiked(f.path(), "spikes", 32, 1337, 2 * 44, 2 * 50);
  auto train = [&](const char* ranks, const std::string& out, const char* shard) {
    return run_crest({"train",       "--model",  "tiny.toml",   "--data", "spikes",  "--batch",      "1",
                      "--steps",     "50",       "--threads",   "2",      "--lr",    "5e-3",         "--schedule",
                      "constant",    "--warmup", "1",           "--keep", "0",       "--save-every", "10",
                      "--val-every", "0",        "--precision", "fp32",   "--json",  "--on-spike",   "rollback",
                      ranks,         "2",        "--out",       out,      "--shard", shard},
                     f.options());
  };
  const RunResult processes = train("--ranks", "processes", "optimizer"),
                  threads = train("--data-parallel", "threads", "none");
  ASSERT_EQ(processes.code, 0) << processes.err;
  ASSERT_EQ(threads.code, 0) << threads.err;
  EXPECT_TRUE(contains(processes.err, "back to the checkpoint of step 40")) << processes.err;
  EXPECT_GT(processes.json()["skipped_samples"], 0) << processes.out;
  EXPECT_LT(processes.json()["loss"], 0.5);
  EXPECT_TRUE(f.last_state("processes") == f.last_state("threads"));
  EXPECT_EQ(f.timeless_log("processes"), f.timeless_log("threads"));
}

TEST(LossOfRanks, EndsTheRunAtTheSameStepLikeThreads) {
  NEEDS_RANKS();
  TrainFolder f;
  auto train = [&](const Flags& ranks, const std::string& out) {
    return f.train(out, 60,
                   ranks + Flags{"--threads", "2", "--lr", "5e-3", "--warmup", "2", "--precision", "fp32",
                                 "--val-every", "5", "--save-every", "0", "--until-loss", "3", "--json"});
  };
  const RunResult threads = train({"--data-parallel", "2"}, "threads");
  ASSERT_EQ(threads.code, 0) << threads.err;
  const RunResult processes = train({"--ranks", "2", "--shard", "optimizer"}, "processes");
  ASSERT_EQ(processes.code, 0) << processes.err;
  auto end = [](const RunResult& r) {
    nlohmann::json until = r.json()["until_loss"];
    EXPECT_GT(until["step_seconds"], 0);
    until.erase("step_seconds");
    return until;
  };
  EXPECT_EQ(processes.json()["ended"], "loss");
  EXPECT_TRUE(contains(processes.err, "--until-loss 3 reached")) << processes.err;
  EXPECT_EQ(end(processes), end(threads));
  const int64_t step = end(processes)["step"];
  EXPECT_TRUE(step >= 10 && step < 60 && step % 5 == 0) << step;
  EXPECT_EQ(end(processes)["tokens"], step * 2 * 2 * 32);
  EXPECT_EQ(f.checkpoints("processes").size(), 1u) << "the run is saved where it ends";
  EXPECT_TRUE(f.last_state("processes") == f.last_state("threads"));
  EXPECT_EQ(f.timeless_log("processes"), f.timeless_log("threads"));
}
