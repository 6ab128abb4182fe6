// --on-spike rollback in a run of several processes.
#include "cli/ranks.h"
#include "cli/train_harness.h"
#include "train/spiked_data.h"

using namespace crest::test;

TEST(SpikesOfRanks, GoBackTogetherLikeThreads) {
  NEEDS_RANKS();
  TrainFolder f;
  prepare_spiked(f.path(), "spikes", 32, 1337, 2 * 44, 2 * 50);
  auto train = [&](const char* ranks, const std::string& out) {
    return run_crest(
        {"train", "--model",   "tiny.toml",  "--data",       "spikes", "--batch",     "1",        "--steps",
         "50",    "--threads", "2",          "--lr",         "5e-3",   "--schedule",  "constant", "--warmup",
         "1",     "--keep",    "0",          "--save-every", "10",     "--val-every", "0",        "--precision",
         "fp32",  "--json",    "--on-spike", "rollback",     ranks,    "2",           "--out",    out},
        f.options());
  };
  const RunResult processes = train("--ranks", "processes"), threads = train("--data-parallel", "threads");
  ASSERT_EQ(processes.code, 0) << processes.err;
  ASSERT_EQ(threads.code, 0) << threads.err;
  EXPECT_TRUE(contains(processes.err, "back to the checkpoint of step 40")) << processes.err;
  EXPECT_GT(processes.json()["skipped_samples"], 0) << processes.out;
  EXPECT_LT(processes.json()["loss"], 0.5);
  EXPECT_TRUE(f.last_state("processes") == f.last_state("threads"));
  EXPECT_EQ(f.timeless_log("processes"), f.timeless_log("threads"));
}
